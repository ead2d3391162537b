"""A rejected draft leaves no trace in state or logits."""
