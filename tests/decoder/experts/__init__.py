"""Tests of routed experts on disk."""
