"""Arms of other runtimes. Each file runs in that runtime's environment, and imports nothing here.

Called with `--versions` it prints one line naming them; else it does what `bench/worker.py` does.
"""
