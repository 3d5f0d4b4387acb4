"""What a job says on the terminal of the findings that it records."""

import pytest

from paceline.views.live import event_text

RECORDED = {
    "t_ns": 1,
    "event": "finding",
    "host": "algo-1",
    "code": "E54",
    "severity": "warning",
    "what": "a",
    "saw": "b",
    "next": "c",
}


def test_a_finding_is_told_in_four_parts_with_the_page_of_its_code():
    lines = event_text(RECORDED).splitlines()
    assert lines[0] == "warning[E54]: a"
    assert [line.split() for line in lines[1:]] == [["saw", "b"], ["next", "c"], ["more", "paceline", "help", "E54"]]
    assert "the guide" in event_text({**RECORDED, "more": "the guide"})


@pytest.mark.parametrize("damage", [{"severity": "dire"}, {"what": None}, {"next": []}])
def test_a_finding_of_a_later_version_or_a_damaged_one_is_no_text(damage):
    assert event_text({**RECORDED, **damage}) is None
