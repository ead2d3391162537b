"""The full profile is the whole product."""

from mtp_conformance.grid import CLASS_MODELS, MODELS, TRAINED_MODELS, dtypes_of, one_round


def test_full_profile_has_every_cell() -> None:
    """Every model x strategy x (K, accepted) x data type x prompt length is one cell."""
    types = sum(len(dtypes_of(model)) for model in (*MODELS, *CLASS_MODELS, *TRAINED_MODELS))
    rounds = sum(k + 1 for k in range(1, 9))
    assert (
        len({c.id for c in one_round("full")}) == len(one_round("full")) == types * 4 * rounds * 12
    )
