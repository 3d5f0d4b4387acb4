"""Foreign control characters become text, our own codes stay codes, and nobody can make one that looks like ours."""

import io
import json
import subprocess
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from paceline.terminal_text import BOLD_RED, VisibleStream, own_code, painted, visible

CONTROLS = {chr(number) for number in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}
BIDI = {"\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
NOT_PRINTED = CONTROLS | BIDI | {"\u2028", "\u2029"}
CLIPBOARD = "\x1b]52;c;Y3VybCB4LnNoIHwgc2g=\x07"
TRAPS = st.text(st.sampled_from("\x1b[]0123456789;mHJKab\x07\x9b\x85\r\n\u202e\u2066\u2028\ud800" + CLIPBOARD))


def test_every_control_character_is_shown_as_text():
    for letter in NOT_PRINTED:
        assert visible(f"a{letter}b").isprintable(), hex(ord(letter))
    assert visible("\x1b[2J") == r"\x1b[2J"
    assert visible("\u202e") == r"\u202e"


def test_all_that_is_no_control_character_stays_as_it_is():
    every = "".join(
        chr(n) for n in range(0x110000) if unicodedata.category(chr(n)) not in ("Cc", "Cs", "Cf", "Zl", "Zp")
    )
    assert visible(every) == every
    assert visible("two\tlines\n") == "two\tlines\n"


def test_half_characters_are_no_bytes_of_a_terminal():
    assert visible(b"\x9b2J".decode("ascii", "surrogateescape")) == r"\udc9b2J"


@given(TRAPS, TRAPS)
def test_only_our_own_codes_reach_the_terminal(one, two):
    shown = visible(one + painted(BOLD_RED, two) + own_code("[K"))
    assert shown.count("\x1b") == 3
    left = shown.replace("\x1b[1;31m", "", 1).replace("\x1b[0m", "", 1).replace("\x1b[K", "", 1)
    assert not NOT_PRINTED & set(left)


@given(st.recursive(st.text() | TRAPS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_is_the_same_json(value):
    shown = visible(json.dumps(value))
    assert json.loads(shown) == value
    assert not NOT_PRINTED & set(shown)


def test_a_stream_shows_what_it_is_given_and_hands_on_the_rest():
    inner = io.StringIO()
    stream = VisibleStream(inner)
    print("a\x1b[2Jb", file=stream)
    stream.writelines(["\r", "\x07"])
    assert inner.getvalue() == "a\\x1b[2Jb\n\\x0d\\x07"
    assert stream.isatty() is False


def test_a_traceback_of_ours_carries_no_control_character():
    program = "from paceline.cli import guarded\ndef fail(): raise RuntimeError('\\x1b]0;mine\\x07')\nguarded(fail, [])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert r"\x1b]0;mine\x07" in ended.stderr and not NOT_PRINTED & set(ended.stderr)
