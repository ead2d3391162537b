"""mlx-lm's own qwen3_5, qwen3_5_moe and qwen3_next classes as targets, unmodified.

`target.py` wraps a loaded model layer by layer, `gated_delta.py` takes its recurrence apart
for the tape, `head.py` builds the MTP head that mlx-lm drops, `load.py` opens a folder
(`trunk.py` mlx-lm's part of it).
"""
