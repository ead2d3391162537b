"""Seeded faults: edits to the real decoder, each of which a state case must kill."""
