"""The gate on a real checkpoint: is decoding with K drafts lossless here, and if not, why.

`mtp-conformance gate --model DIR` holds one folder, in one process, to the claims that the cases
hold the zoo to. `prompts.py` says what is decoded, `frugal.py` how expected values are made without
keeping any, `oracles.py` joins the two, `checks.py` lists what is claimed, `running.py` runs it and
writes the report, `answer.py` says the outcome in one word and `screen.py` in one screen.
"""
