"""The suite's own catalogue of faults."""

from collections import Counter
from pathlib import Path

from mtp_conformance.catalogue import FAULTS_FILE, read_catalogue

ROOT = Path(__file__).parents[2]


def test_catalogue_is_complete() -> None:
    """The catalogue has faults of every kind, 125 or more of them."""
    catalogue = read_catalogue(ROOT / FAULTS_FILE)
    kinds = Counter(fault.kind for fault in catalogue.faults.values())
    assert len(catalogue.faults) >= 125
    assert set(kinds) == set(catalogue.kinds)
