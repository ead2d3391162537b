"""The cases: one property a file. `clauses.toml` says what is required and why."""
