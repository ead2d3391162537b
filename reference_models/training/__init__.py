"""How the shipped checkpoints of `reference_models/trained/` came about.

One file a step: `collect` made the texts, `texts` reads and samples them, `recipe` says what is
trained and how, `fast_forms` makes the specification quick enough for it, `losses` is what is made
small, `loop` does that and can be stopped and resumed, `ship` writes the folder and `curve` draws
its losses. `python -m reference_models.training --help` runs it.
"""
