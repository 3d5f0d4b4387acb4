"""Columns that fit."""

from paceline.views.table import crop, table

ROWS = [("r-000001", "a rather long name of a run", "1 020"), ("r-2", "b", "7")]


def test_columns_are_as_wide_as_they_need():
    assert table(("RUN", "NAME", "STEP"), ROWS, right=frozenset({"STEP"})) == (
        "RUN       NAME                          STEP\n"
        "r-000001  a rather long name of a run  1 020\n"
        "r-2       b                                7"
    )


def test_text_gives_way_before_numbers():
    assert table(("RUN", "NAME", "STEP"), ROWS, right=frozenset({"STEP"}), width=30) == (
        "RUN       NAME            STEP\nr-000001  a rath… a run  1 020\nr-2       b                  7"
    )


def test_no_line_is_longer_than_the_width():
    for width in range(25, 50):
        assert all(len(line) <= width for line in table(("RUN", "NAME", "STEP"), ROWS, width=width).splitlines())


def test_the_middle_is_left_out_and_marked():
    assert crop("0123456789", 6, ascii_only=True) == "01...9"
    assert crop("0123456789", 6) == "012…89"
    assert crop("0123456789", 2, ascii_only=True) == ".."
    assert crop("0123456789", 1) == "…" and crop("0123456789", 0) == ""


def test_without_a_width_nothing_is_left_out():
    assert crop("x" * 300, None) == "x" * 300
    assert "x" * 300 in table(("NAME",), [("x" * 300,)], width=None)


def test_a_table_without_rows_has_its_headers():
    assert table(("RUN", "NAME"), []) == "RUN  NAME"
