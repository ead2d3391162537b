# pyright: basic
"""mlx 0.32.4 on CUDA: no product with quantised rows that are a part of a longer buffer.

pip install --no-deps "mlx[cuda13]==0.32.4"
python docs/findings/mlx_cuda_quantised_rows.py
"""

import mlx.core as mx

SIZE, GROUP, BITS = 32, 32, 4
buffer = mx.random.normal((1, 2, 256, SIZE))  # as a cache has it: room for rows to come
for count in (1, 8, 64, 200):
    whole = mx.quantize(buffer[:, :, :count] + 0, group_size=GROUP, bits=BITS)
    part = [rows[:, :, :count] for rows in mx.quantize(buffer, group_size=GROUP, bits=BITS)]
    grouped = [rows[:, :, None] for rows in whole]  # as for two queries a key
    for name, rows, shape in (
        ("rows alone", whole, (1, 2, 1, SIZE)),
        ("rows of a longer buffer", part, (1, 2, 1, SIZE)),
        ("rows alone, two queries a key", grouped, (1, 2, 2, 1, SIZE)),
    ):
        try:
            mx.eval(mx.quantized_matmul(mx.ones(shape), *rows, group_size=GROUP, bits=BITS))
            print(f"{count} {name}: computed")
        except RuntimeError as error:
            print(f"{count} {name}: {error}")
