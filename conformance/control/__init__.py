"""What must hold before any other verdict counts."""
