"""What an accelerator does to the claims: measured by `nox -s gpu`, on any device mlx has.

`models.py` makes the models, `exact.py` asks for bits, `near.py` counts ties of the fast mode,
`timing.py` and `fast_verify.py` measure, `rows.py` keeps the raw rows. No file here is a test.
"""
