"""Tests of the reference models: mechanisms against formulas, checkpoints, tokenizer, the zoo."""
