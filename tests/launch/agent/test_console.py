"""What many streams write, on one terminal: no line holds the text of two."""

import random

import pytest

from paceline.launch.agent.console import LONGEST_HELD_BYTES, ConsoleLines


class Terminal:
    """Ranks that write, each by its number, and a clock that is turned by hand."""

    def __init__(self):
        self.lines, self.now, self.shown = ConsoleLines(), 0.0, b""

    def write(self, rank, chunk, *, stream="out", prefix=b""):
        self.shown += self.lines.take((rank, stream), rank, chunk, self.now, prefix=prefix)

    def wait(self, seconds):
        self.now += seconds
        self.shown += self.lines.due(self.now)

    def end(self, rank, stream="out"):
        self.shown += self.lines.end((rank, stream))


@pytest.fixture
def terminal():
    return Terminal()


def test_lines_that_come_in_pieces_come_out_whole(terminal):
    for one, other in zip(b"aaaa\n", b"bbbb\n", strict=True):
        terminal.write(0, bytes([one]))
        terminal.write(1, bytes([other]))
    assert terminal.shown == b"aaaa\nbbbb\n"


def test_a_prompt_of_a_rank_that_is_alone_is_shown_soon(terminal):
    terminal.write(0, b"name? ")
    assert terminal.shown == b"" and terminal.lines.waiting
    terminal.wait(0.1)
    assert terminal.shown == b"name? " and terminal.lines.line_open
    terminal.write(0, b"thanks")
    assert terminal.shown == b"name? thanks"


def test_an_unfinished_line_ends_before_the_line_of_another_begins(terminal):
    terminal.write(0, b"working")
    terminal.wait(2.0)
    terminal.write(1, b"a line\n")
    terminal.write(0, b" done\n")
    assert terminal.shown == b"working\na line\n done\n"


def test_two_streams_of_one_rank_do_not_mix_either(terminal):
    terminal.write(0, b"epoch 1 ")
    terminal.wait(0.1)
    terminal.write(0, b"a warning\n", stream="err")
    terminal.write(0, b"loss 3\n")
    assert terminal.shown == b"epoch 1 \na warning\nloss 3\n"


def test_a_progress_bar_moves_with_every_change(terminal):
    terminal.write(0, b"\r 10%")
    terminal.write(0, b"\r 20%")
    assert terminal.shown == b"\r 10%\r 20%"
    terminal.write(1, b"epoch done\n")
    terminal.write(0, b"\r 30%")
    assert terminal.shown == b"\r 10%\r 20%\nepoch done\n\r 30%"


def test_of_two_progress_bars_one_moves_until_it_is_quiet_or_ends(terminal):
    for percent in (b"10%", b"20%"):
        terminal.write(0, b"\rzero " + percent)
        terminal.write(1, b"\rone " + percent)
        terminal.wait(0.5)
    assert terminal.shown == b"\rzero 10%\rzero 20%"
    terminal.wait(0.6)
    assert terminal.shown.endswith(b"20%\n\rone 10%\rone 20%")
    terminal.write(1, b"\n")
    terminal.write(0, b"\rzero 30%\n")
    assert terminal.shown.endswith(b"\rone 20%\n\rzero 30%\n")


def test_paceline_s_own_words_begin_on_a_line_of_their_own(terminal):
    terminal.write(0, b"working")
    terminal.wait(0.1)
    terminal.shown += terminal.lines.between(b"paceline  stopping\n")
    assert terminal.shown == b"working\npaceline  stopping\n" and not terminal.lines.line_open


def test_a_prefix_stands_where_a_line_begins_and_nowhere_else(terminal):
    terminal.write(0, b"a", prefix=b"[0]:")
    terminal.wait(0.1)
    terminal.write(0, b"b\nc\n", prefix=b"[0]:")
    assert terminal.shown == b"[0]:ab\n[0]:c\n"
    terminal.write(0, b"\r1%", prefix=b"[0]:")
    terminal.write(0, b"\r2%", prefix=b"[0]:")
    assert terminal.shown.endswith(b"[0]:\r[0]:1%\r[0]:2%")


def test_a_line_without_end_is_held_up_to_a_bound(terminal):
    terminal.write(1, b"\r 10%")
    terminal.write(0, b"x" * LONGEST_HELD_BYTES)
    assert b"x" not in terminal.shown
    terminal.write(0, b"xx")
    assert terminal.shown.count(b"x") == LONGEST_HELD_BYTES + 2


def test_what_has_no_line_end_at_the_end_of_a_rank_is_shown(terminal):
    terminal.write(0, b"last words")
    terminal.end(0)
    terminal.write(1, b"a line\n")
    assert terminal.shown == b"last words\na line\n" and not terminal.lines.waiting


@pytest.mark.parametrize("seed", range(20))
def test_no_line_holds_the_text_of_two_and_nothing_is_lost(seed):
    """Each rank writes its own letter, in pieces of any length, with pauses of any length."""
    chance = random.Random(seed)
    terminal = Terminal()
    texts = {
        rank: b"".join(
            bytes([97 + rank]) * chance.randrange(1, 200) + chance.choice([b"\n", b"\n", b"\r"]) for _ in range(30)
        )
        for rank in range(8)
    }
    left = dict(texts)
    while left:
        rank = chance.choice(list(left))
        length = chance.choice([1, 1, 7, 150])
        terminal.write(rank, left[rank][:length])
        left[rank] = left[rank][length:]
        if not left[rank]:
            terminal.end(rank)
            del left[rank]
        terminal.wait(chance.choice([0.0, 0.01, 0.3, 1.5]))
    for line in terminal.shown.split(b"\n"):
        assert len(set(line) - {13}) <= 1
    for rank, text in texts.items():
        assert bytes(byte for byte in terminal.shown if byte == 97 + rank) == text.replace(b"\n", b"").replace(
            b"\r", b""
        )
