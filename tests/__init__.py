"""Tests of ourselves: the decoder, the harness, the reference models and the tools around them."""
