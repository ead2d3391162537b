"""Tests of the harness: comparator, cases, report, pytest plugin and summary."""
