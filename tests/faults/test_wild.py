"""What bench/wild.py compares and draws, without a run."""

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from wild_judge import ALONE, EXPECTED, Ran, breaks, compare, page, plain, read, said_right, shape  # noqa: E402
from wild_scripts import SCRIPTS, Script  # noqa: E402

SCRIPT = Script(name="one", repository="someone/some", folder=".", argv=("train.py",), steps=4)


def ran(**fields):
    return Ran(
        **{"code": 0, "seconds": 9.0, "losses": ("0.5", "0.7"), "shapes": ("loss #",), "own_ms": None, "steps": 4}
        | fields
    )


def test_what_a_run_printed_is_read():
    err = "noise\ndone  r-1  exit 0  in 41 s  1,020 steps  68.5 ms/step\n  logs  paceline logs\n"
    told = read(SCRIPT, "epoch 1 Loss: 0.7\nepoch 2 Loss: 0.5\n", err, 0, 41.0)
    assert (told.losses, told.steps, told.step_ms) == (("0.5", "0.7"), 1020, 68.5)
    assert told.shapes == ("epoch # Loss: #",)
    assert read(SCRIPT, "", "no summary", 1, 1.0).steps is None


def test_numbers_do_not_count_in_the_shape_of_a_line():
    assert shape("step 3 of 40: 1.2e-3 s") == shape("step 12 of 40: 9.9 s")


def test_losses_count_only_where_torchruns_own_agree():
    other = ran(losses=("0.1", "0.2"))
    assert compare(SCRIPT, "abc", [ran(), ran()], ran()).same_losses is True
    assert compare(SCRIPT, "abc", [ran(), ran()], other).same_losses is False
    assert compare(SCRIPT, "abc", [ran(), other], other).same_losses is None
    assert compare(SCRIPT, "abc", [ran(losses=()), ran(losses=())], ran()).deterministic is None


def test_a_run_is_right_only_where_nothing_differs():
    assert compare(SCRIPT, "abc", [ran(), ran()], ran()).right
    for wrong in (
        {"code": 1},
        {"steps": 5},
        {"shapes": ("loss #", "paceline says hello")},
        {"losses": ("0.5", "0.8")},
    ):
        assert not compare(SCRIPT, "abc", [ran(), ran()], ran(**wrong)).right


def test_a_busy_machine_may_be_told_so():
    told = compare(SCRIPT, "abc", [ran(), ran()], ran(findings=("S03", "N01")))
    assert told.false_findings == ("N01",)


def test_the_same_seed_draws_the_same_breaks():
    for script in SCRIPTS:
        drawn = breaks(script, 1)
        assert drawn == breaks(script, 1)
        assert len(drawn) == (2 if script.breakable else 0)
        assert all(0 <= rank < script.ranks and step >= 2 for _, rank, step in drawn)
        assert all(what in (EXPECTED if script.exchanges else ALONE) for what, _, _ in drawn)


def test_there_is_one_patch_for_each_break():
    text = (BENCH / "wild_site" / "sitecustomize.py").read_text()
    assert len(EXPECTED) == 10
    assert all(f"def {what}()" in text for what in EXPECTED)


@pytest.mark.parametrize(
    ("what", "ranks", "code", "right"),
    [
        ("asleep", [1], "N01", (True, True)),
        ("asleep", [0], "N01", (True, False)),
        ("extra_collective", [0, 1], "M06", (True, True)),
        ("killed", [0, 1], "C01", (False, False)),
        ("killed", None, None, (False, False)),
    ],
)
def test_the_first_finding_is_judged(what, ranks, code, right):
    assert said_right(what, 1, 2, {"code": code, "ranks": ranks}) == right


def test_names_are_unique_and_the_page_names_what_did_not_run():
    assert len({script.name for script in SCRIPTS}) == len(SCRIPTS)
    row = plain(compare(SCRIPT, "abcdef", [ran(), ran()], ran()))
    text = page([SCRIPT, *SCRIPTS[:1]], [row], {SCRIPTS[0].name: "no checkout of it"}, "Conditions.")
    assert "`one`" in text and "no checkout of it" in text and "as known" in text
