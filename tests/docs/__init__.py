"""Pages that code writes."""
