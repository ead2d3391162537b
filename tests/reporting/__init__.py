"""Tests of what is made from reports: pages, digest, shards, merging, comparison, commands."""
