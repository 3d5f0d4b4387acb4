"""The line that shows how far work is."""

import io
import threading

import pytest

from paceline.cli.progress import LINE_SECONDS, ProgressLine
from paceline.terminal_text import VisibleStream
from paceline.views.progress import BYTES


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock():
    return Clock()


def begun(stream, clock, *, environ=None, **options):
    """A ProgressLine whose thread does not run: the test looks."""
    return ProgressLine(
        "packing code", 400, BYTES, stream=VisibleStream(stream), clock=clock, environ=environ or {}, **options
    )


def test_short_work_shows_nothing(clock):
    stream = Terminal()
    with ProgressLine("packing code", 400, BYTES, stream=VisibleStream(stream), clock=clock, environ={}) as progress:
        clock.now += 0.9
        progress.look()
    assert stream.getvalue() == ""


def test_a_terminal_has_one_line_that_is_painted_over_and_goes_away(clock):
    stream = Terminal()
    progress = begun(stream, clock)
    for done in (100, 200):
        clock.now += 2
        progress.at(done)
        progress.look()
    progress.__exit__(None, None, None)
    assert stream.getvalue().count("\n") == 0
    assert [text.partition(" [")[0] for text in stream.getvalue().split("\x1b[G")] == [
        "",
        "packing code",
        "packing code",
        "\x1b[K",
    ]


def test_a_file_has_a_line_at_the_start_every_half_minute_and_at_the_end(clock):
    stream = io.StringIO()
    progress = begun(stream, clock)
    for second in range(70):
        clock.now += 1
        progress.at(second * 5)
        progress.look()
    progress.at(400)
    progress.__exit__(None, None, None)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 + 70 // LINE_SECONDS
    assert lines[0].startswith("paceline  packing code [")
    assert lines[-1] == "paceline  packing code: 400 B (1m 10s)"
    assert "\x1b" not in stream.getvalue() and "\r" not in stream.getvalue()


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(clock):
    stream = Terminal()
    progress = begun(stream, clock, environ={"TERM": "dumb"})
    clock.now += 2
    progress.look()
    assert stream.getvalue() == "paceline  packing code [..........] 0% of 400 B\n"


def test_work_that_fails_leaves_no_line_that_says_it_was_done(clock):
    stream = io.StringIO()
    progress = begun(stream, clock)
    clock.now += 2
    progress.look()
    progress.__exit__(ValueError, ValueError(), None)
    assert len(stream.getvalue().splitlines()) == 1


def test_nothing_is_shown_where_nothing_may_be_shown(clock):
    stream = Terminal()
    with ProgressLine("packing", stream=VisibleStream(stream), clock=clock, shown=False, environ={}) as progress:
        clock.now += 100
        progress.add()
    assert stream.getvalue() == ""


def test_other_lines_come_before_the_painted_one(clock):
    stream = Terminal()
    progress = begun(stream, clock)
    clock.now += 2
    progress.look()
    with progress.hidden():
        stream.write("a row\n")
    assert stream.getvalue().endswith("\x1b[G\x1b[Ka row\n")


def test_a_stream_that_nobody_reads_ends_no_work(clock):
    class Gone(Terminal):
        def write(self, text):
            raise BrokenPipeError

    progress = begun(Gone(), clock)
    clock.now += 2
    progress.look()
    progress.__exit__(None, None, None)


def test_the_thread_paints_while_the_work_goes_on_and_has_ended_after_it():
    stream = Terminal()
    painted = threading.Event()

    class Watched(Terminal):
        def write(self, text):
            painted.set()
            return stream.write(text)

    with ProgressLine("waiting", stream=VisibleStream(Watched()), environ={}) as progress:
        assert painted.wait(30)
    assert not progress._thread.is_alive()
