"""The commands of `mtp-conformance`, one a file: `add_parser` and `run`."""
