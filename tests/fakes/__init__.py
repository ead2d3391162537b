"""Runtimes that are wrong on purpose, one a file, and what the harness must say of each."""
