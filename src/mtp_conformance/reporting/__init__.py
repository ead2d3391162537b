"""Everything derived from reports: pages for people and CI, shards, comparison of two runs."""
