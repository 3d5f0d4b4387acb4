"""A finding that contradicts itself cannot be made."""

import pytest

from paceline.diagnosis.case import Level
from paceline.findings import NO_CODE, CauseFinding, Confidence
from paceline.recording.fact_json import from_plain, to_plain


def finding(code, level, confidence=Confidence.UNCLEAR):
    return CauseFinding(code=code, title="t", level=level, confidence=confidence)


@pytest.mark.parametrize("confidence", [Confidence.HIGH, Confidence.LIKELY])
@pytest.mark.parametrize("level", Level)
def test_a_cause_that_is_not_known_is_never_sure(level, confidence):
    with pytest.raises(ValueError, match="not known"):
        finding(NO_CODE, level, confidence)
    assert finding(NO_CODE, level).confidence is Confidence.UNCLEAR


@pytest.mark.parametrize(
    ("code", "levels"),
    [
        ("N01", {Level.STALL, Level.WAITING}),
        ("M01", {Level.DIVERGENCE, Level.QUALITY}),
        ("C04", {Level.CRASH, Level.LIMIT}),
        ("R01", {Level.START, Level.STALL}),
        ("S01", {Level.SLOW, Level.STALL}),
    ],
)
def test_the_level_agrees_with_the_letter_of_the_code(code, levels):
    for level in Level:
        if level in levels:
            assert finding(code, level).level is level
        else:
            with pytest.raises(ValueError, match="cannot be at level"):
                finding(code, level)


def test_a_finding_of_a_recording_is_held_to_the_same():
    plain = to_plain(finding("C01", Level.CRASH))
    assert from_plain(CauseFinding, plain).level == "crash"
    with pytest.raises(ValueError, match="cannot be at level"):
        from_plain(CauseFinding, {**plain, "level": "slow"})
