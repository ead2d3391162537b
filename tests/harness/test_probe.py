"""The probe finds operations that are not row-exact."""

import mlx.core as mx

from mtp_conformance.probe import OPERATIONS, Draw, run_probe


def _by_row_count(x: mx.array, draw: Draw) -> mx.array:
    """An operation that rounds by the number of rows."""
    del draw
    return x * (1.0 + 2.0**-7 * x.shape[1])


def test_cpu_backend_is_row_exact() -> None:
    """Cheap operations of the CPU backend give equal bits at every width."""
    names = ("matmul", "rms_norm", "exp")
    assert run_probe({name: OPERATIONS[name] for name in names}).row_exact


def test_operation_that_depends_on_rows_is_found() -> None:
    """An operation that rounds by the number of rows is unequal at every width."""
    probe = run_probe({"odd": _by_row_count})
    assert not probe.row_exact
    assert set(probe.equal["odd/float32"].values()) == {False}


def test_fingerprint_depends_on_what_was_found() -> None:
    """Two outcomes have two fingerprints, one outcome has one."""
    exact, odd = run_probe({"op": OPERATIONS["exp"]}), run_probe({"op": _by_row_count})
    assert exact.fingerprint == run_probe({"op": OPERATIONS["exp"]}).fingerprint
    assert exact.fingerprint != odd.fingerprint
