"""Reference models: the executable specification of the hybrid mechanisms.

One file a mechanism, plain MLX, mlx-lm's own cache classes for state. `zoo` lists the tiny
models, `checkpoint` writes and reads them as ordinary folders:

    python -m reference_models write gdn DIR --dtype bfloat16
"""
