"""Cases of how deep to draft, by a fake clock."""
