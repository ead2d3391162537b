"""Times by phase are those of what happens in the phase."""
