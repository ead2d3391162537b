"""Adapters: runtimes behind the protocol."""
