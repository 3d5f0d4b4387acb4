"""docs/accuracy.md and the fitted constants are those of the data; the whole page takes seconds, so its headline figures stand for it."""

import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def bench(repository) -> Iterator[ModuleType]:
    """bench/accuracy.py, imported as it imports its neighbours."""
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(repository / "bench"))
    try:
        import accuracy

        yield accuracy
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if not name.startswith(("paceline", "numpy")):
                del sys.modules[name]


@pytest.fixture(scope="module")
def page(repository) -> str:
    return (repository / "docs" / "accuracy.md").read_text(encoding="utf-8")


def test_the_fitted_constants_are_those_of_the_rows(bench):
    assert bench.constants_that_differ() == []


def test_the_page_has_the_figures_of_two_measured_host_counts(bench, page):
    step = bench.accuracy_step
    found = [one for one in step.predictions(step.TIERS[0], "source") if one.case.usual]
    error = sum(abs(one.error) for one in found) / len(found)
    assert re.search(rf"\| Two measured host counts [^|]*\| 4 % \| {error * 100:.1f} % \|", page)
    assert error <= 0.04


def test_the_page_has_the_figure_of_a_probe(bench, page):
    error = bench.accuracy_collective.headline()
    assert f"| An exchange between the sizes of a probe | 8 % | {error * 100:.1f} % |" in page
    assert error <= 0.08


def test_the_page_has_the_rows_that_take_part(bench, page):
    for line in bench.left_out().splitlines():
        assert re.sub(r"(?<=\d)%", " %", line) in page


def test_the_page_counts_the_doubtful_rows_as_they_are(bench, page):
    import accuracy_suspects

    first = accuracy_suspects.section().split("What the other rows draw")[0]
    assert re.sub(r"(?<=\d)%", " %", first).strip() in page
