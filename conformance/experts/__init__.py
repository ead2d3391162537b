"""Routed experts on disk."""
