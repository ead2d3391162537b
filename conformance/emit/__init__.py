"""Wherever decoding ends, the caches are at the emitted frontier."""
