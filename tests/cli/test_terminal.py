"""What a terminal can show."""

import io

import pytest

from paceline.cli.terminal import ascii_only, columns, room, use_color


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("choice", "environ", "terminal", "colored"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, False, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour(choice, environ, terminal, colored):
    stream = Terminal() if terminal else io.StringIO()
    assert use_color(choice, stream, environ) is colored


def test_an_ascii_stream_is_known_by_its_encoding():
    assert ascii_only(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert not ascii_only(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_a_file_is_always_as_wide():
    assert columns(io.StringIO()) == 100


def test_a_line_of_a_file_may_have_any_length():
    assert room(io.StringIO()) is None
