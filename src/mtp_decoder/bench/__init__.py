"""Measuring: speed against K, strategy, workload and experts on disk, and where the time goes.

| file | what |
|---|---|
| `plan.py` | what is run, in which order: arms, blocks, A/B/B/A |
| `plan_file.py` | a plan from a TOML file |
| `worker.py` | one run, in a process of its own |
| `running.py` | runs, one after the other; raw rows as they come |
| `rows.py` | raw rows: one JSON object a line |
| `machine.py` | computer and versions, as the page names them |
| `limit.py` | how fast drafts could make it: tokens a round over what the round costs |
| `summary.py` | medians and spread; what is not reliable is withheld |
| `targets.py` | what the figures are held to |
| `page.py`, `plot.py` | the same for people |
| `peers/` | arms that run in another package's environment |

A figure is a ratio within one run of all of this, or it is shown as what this one machine did.
"""
