"""The head's cache is in step with the target's."""
