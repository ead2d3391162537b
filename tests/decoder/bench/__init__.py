"""Tests of `mtp_decoder.bench`. Nothing here is held to a time."""
