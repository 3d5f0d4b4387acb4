"""Marks in a rank's output are found wherever a read cuts them, and nothing else is taken for one."""

import pytest

from paceline.recording.output_mark import between_marks, mark_of

DATA = b"a\n" + mark_of(3) + b"b" + mark_of(18_000_000_000_000_000_000) + mark_of(4) + b"c\x1e\x00pace\n"


def read_in_pieces(data, cut):
    texts, steps, unread = b"", [], b""
    for piece in (data[:cut], data[cut:]):
        found, unread = between_marks(unread + piece)
        texts += b"".join(text for text, _ in found)
        steps += [step for _, step in found if step is not None]
    return texts + unread, steps


@pytest.mark.parametrize("cut", range(len(DATA)))
def test_marks_are_found_wherever_a_read_ends(cut):
    assert read_in_pieces(DATA, cut) == (b"a\nbc\x1e\x00pace\n", [3, 18_000_000_000_000_000_000, 4])


def test_text_without_a_mark_is_given_at_once():
    assert between_marks(b"step 1\n") == ([(b"step 1\n", None)], b"")
    assert between_marks(b"a\x1eb") == ([(b"a\x1eb", None)], b"")
    assert between_marks(mark_of(1)[:-1] + b"x") == ([(mark_of(1)[:-1] + b"x", None)], b"")


def test_the_start_of_a_mark_waits_for_its_rest():
    assert between_marks(b"a" + mark_of(1)[:9]) == ([(b"a", None)], mark_of(1)[:9])
