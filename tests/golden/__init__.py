"""Tests of golden vectors: what is pinned, refused, compared, made again and shown."""
