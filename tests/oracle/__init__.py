"""The independent oracle: what models nobody here wrote compute from the same checkpoints.

Hugging Face transformers (PyTorch) opens the zoo's checkpoint folders, in float64 with its
casts neutralised. What it computes is stored in `golden/oracle/` and compared with the reference
models and with mlx-lm's classes: logits, every state after every token, PLE and index rows, head.

    python3 noxfile.py -s oracle                  # open, run, compare, hold to what is stored
    python3 noxfile.py -s oracle -- --write       # store anew, and write docs/oracle.md

`double`, `hugging_face`, `composed`, `running` and `__main__` need PyTorch and are imported by no
other room; everything else needs what the reference models need, and `tests/` use it.
"""
