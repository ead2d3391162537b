"""Nothing is owed to the next round, and nothing is kept for it that was not said."""
