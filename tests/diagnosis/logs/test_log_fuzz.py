"""Whatever a file holds, the reader of logs answers or refuses it, in bounded time; and a word that it looks for first loses no match."""

import random
import re
import time

import pytest
from log_corpus import RELEASES, TRAINING, TWO_CAUSES, corpus

from paceline.cli.why_log import END_BYTES, read_part
from paceline.diagnosis.logs.judge_logs import judge_logs
from paceline.diagnosis.logs.lines import Log, plain_text
from paceline.diagnosis.logs.patterns import SIGNS
from paceline.diagnosis.logs.prefilter import needed_words
from paceline.errors import UsageError

# Pieces of what is looked for, so that noise meets the patterns in their middle.
PIECES = (
    "[rank1]:", "[Rank 1] ", "Watchdog caught collective operation timeout: ", "WorkNCCL(", "SeqNum=1, OpType=", "(ms)=", ")",
    "[PG ID 0 ", "Rank 1]", "last enqueued work: ",
    "Traceback (most recent call last):", '  File "a.py", line 1, in f', "KeyError: 1", "\n", "\r", "\x1b[31m",
    "\x1b[", "2026-01-30T11:30:02Z ", "2026-13-45 99:99:99 ", "E1399 99:99:99.9 ", "MaxRuntimeExceeded", "unable to open </torch_", "(28)",
    "rank : 1 (local_rank: 1)\n exitcode : -9 (pid: 5)", "Root Cause (first observed failure):", "[1,1]<stderr>:",
    "\0", "é", "{", "py_callstack", "-9",
    "[0, 1] finished collective #", "world_size=", "999999999999999999999", "DataLoader worker (pid ", " ran for ", " milliseconds",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_noise_made_of_pieces_is_read_without_failing(seed):
    source = random.Random(seed)
    text = "".join(source.choice(PIECES) + "x" * source.randrange(3) for _ in range(400))
    said = judge_logs([Log("a", plain_text(text)), Log("b", text[::-1])])
    assert len(said.findings) <= 4


@pytest.mark.parametrize("seed", range(20))
def test_bytes_of_any_kind_are_read_or_refused(seed, tmp_path):
    source = random.Random(seed)
    kept = source.randbytes(source.randrange(2000)) if seed % 2 else bytes(source.choices(range(32, 256), k=3000))
    file = tmp_path / "junk"
    file.write_bytes(kept + RELEASES[4].timeout(1, 9, "ALLREDUCE").encode() + kept)
    try:
        part = read_part(str(file))
    except UsageError as refused:
        assert refused.code == "U27"
    else:
        judge_logs([part])


@pytest.mark.parametrize(
    "text",
    [
        "x" * (2 << 20),
        "[1" * (1 << 20),
        "\x1b[1" * (1 << 19),
        "[rank1]:" * (1 << 18),
        RELEASES[4].timeout(1, 9, "ALLREDUCE") * 5_000,
        "DataLoader worker (pid 1 " * 50_000,
        "Traceback (most recent call last):\n" * 25_000,
        "unable to open shared memory " * 25_000,
        "2026-01-30 10:11:12,123 INFO step 7 loss 0.1\n" * 50_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_a_log_of_megabytes_takes_seconds(text):
    began = time.process_time()
    judge_logs([Log("a", plain_text(text))])
    assert time.process_time() - began < 20


def test_of_a_log_of_a_hundred_megabytes_both_ends_are_read(tmp_path):
    file = tmp_path / "long.log"
    with file.open("w") as log:
        for _ in range(100):
            log.write(TRAINING * ((1 << 20) // len(TRAINING)))
        log.write("\n" + RELEASES[4].timeout(1, 4211, "ALLREDUCE") + "\n")
    began = time.process_time()
    part = read_part(str(file))
    found = judge_logs([part]).findings[0]
    assert time.process_time() - began < 20
    assert len(part.text) <= 2 * END_BYTES + 1 and "MB in its middle were not read" in part.note
    assert found.saw[0].startswith("rank 1 waited 30 min in ALLREDUCE #4211")


def test_a_word_that_is_looked_for_first_loses_no_match():
    texts = [text for _, text, _ in corpus()] + list(TWO_CAUSES)
    for sign in SIGNS:
        assert sign.words, f"has to be tried on every text: {sign.pattern.pattern}"
        for text in texts:
            assert sign.may_be_in(text) or not sign.pattern.search(text), (sign.pattern.pattern, text)


@pytest.mark.parametrize(
    ("pattern", "words", "matching"),
    [
        ("abc", ("abc",), "xabcx"),
        ("abc|defg", ("abc", "defg"), "defg"),
        (r"ab\.cd?e", ("ab.c",), "ab.ce"),
        (r"abcd*efgh", ("efgh",), "abcefgh"),
        (r"abcd+ef", ("abcd",), "abcdddef"),
        (r"[Aa]bcd(?:ef|gh|)ijk", ("bcd",), "Abcdijk"),
        (r"abc(d|e|f)\dxyzw", ("xyzw",), "abce7xyzw"),
        (r"(?:abc|def)", (), "def"),
        ("ab|cdef", (), "ab"),
        (r"[]|x]abc|[^]|]defg", ("abc", "defg"), "|abc"),
        (r"x\d{0,3}abc{2}", ("abc",), "xabcc"),
    ],
)
def test_the_word_that_a_pattern_needs_is_in_whatever_it_matches(pattern, words, matching):
    assert needed_words(pattern) == words
    assert re.search(pattern, matching) and (not words or any(word in matching for word in words))
