"""Tests of the decoder: input it refuses, sessions, generation, rewinds, mlx-lm's own models."""
