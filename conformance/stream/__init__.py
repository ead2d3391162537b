"""Tokens with drafts are the tokens without."""
