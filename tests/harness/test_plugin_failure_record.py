"""Plugin: a failing result says where and how to see it again."""

from collections.abc import Callable

from mtp_conformance.report import Failure, Report

SOURCE = """
@a_case("rewind.recurrent.a", cells=lambda profile: [Cell(model="gdn", k=2, dtype="float32")])
def test_rewound(cell, witness):
    '''A rewound state is the never-rejected one.'''
    actual, expected = {"layers.1.conv": mx.ones((2, 2))}, {"layers.1.conv": mx.zeros((2, 2))}
    witness.add(compared=require_equal(actual, expected, what="the never-rejected run", round=3))
"""


def test_a_difference_is_recorded_with_its_place(report_of: Callable[..., Report]) -> None:
    """The record holds round, layer, component, index, both bit patterns and a command."""
    (result,) = report_of(SOURCE, "-n", "0", "--dist", "loadgroup").results
    assert result.params == {"model": "gdn", "k": 2, "dtype": "float32"}
    assert result.failure == Failure(
        message=(
            "after round 3: layers.1 conv differs from the never-rejected run: 4 of 4 elements, "
            "first at (0, 0): 0x3f800000 vs 0x00000000 (1065353216 ULP)"
        ),
        command=(
            "python -m pytest 'test_cases.py::test_rewound[gdn-k2-float32]' --profile default -n 0"
        ),
        layer="layers.1",
        component="conv",
        round=3,
        index=(0, 0),
        actual_bits="0x3f800000",
        expected_bits="0x00000000",
        ulp=1065353216,
    )


def test_the_command_names_another_runtime(report_of: Callable[..., Report]) -> None:
    """A failure of another runtime is seen again with that runtime."""
    report = report_of(SOURCE, "--runtime", "peer")
    (result,) = report.results
    assert result.failure is not None
    assert "--runtime peer" in result.failure.command
    assert report.header.runtime == {"name": "peer", "given": "peer"}
