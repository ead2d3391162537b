"""The gate on a real checkpoint, and what checkpoints it and the decoder open or refuse."""
