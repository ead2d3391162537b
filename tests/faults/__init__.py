"""Seeded faults: edits to the real decoder, each of which a case must kill.

`python -m tests.faults` makes the kill matrix. One module a family; each has `FAULTS`.
"""
