"""What a rank shows again after a resume is left out of the terminal, and nothing that was not shown is."""

import random

import pytest

from paceline.launch.agent.repeated_output import REMEMBERED_BYTES, RepeatedOutput, ResumedFrom
from paceline.recording.output_mark import mark_of


def shown(output, data):
    return output.take(data)[1]


def step(number, text="step"):
    """What a rank writes in a step, and that it is kept."""
    return b"%s %d\n" % (text.encode(), number) + mark_of(number)


def killed_in_step_4():
    """The output of a rank that has kept steps 1 to 3, and of step 4 has shown a line and a half."""
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    output.take(b"loading\n" + step(1) + step(2) + step(3) + b"step 4\nloss")
    output.end()
    return output


def test_marks_are_in_neither_the_log_nor_the_terminal():
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    assert output.take(b"a\n" + mark_of(1) + b"b") == (b"a\nb", b"a\nb")
    assert output.take(mark_of(2)[:5]) == (b"", b"") and output.end() == (mark_of(2)[:5],) * 2


def test_lines_of_a_step_that_is_made_again_are_shown_once_and_all_are_in_the_log():
    output = killed_in_step_4()
    output.begin(ResumedFrom(3, 4))
    data = b"loading\n" + mark_of(3) + b"step 4\nloss 0.5\n" + mark_of(4) + b"step 5\n"
    log, terminal = output.take(data)
    assert log == b"loading\nstep 4\nloss 0.5\nstep 5\n"
    assert terminal == b"loss 0.5\nstep 5\n"


def test_where_the_other_ranks_go_on_from_an_older_step_both_steps_are_shown_once():
    output = killed_in_step_4()
    output.begin(ResumedFrom(2, 4))
    assert shown(output, b"loading\n" + mark_of(2) + step(3) + step(4) + step(5)) == b"step 5\n"


def test_a_line_with_another_text_is_shown_and_the_equal_ones_after_it_are_not():
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    output.take(mark_of(1) + b"took 1 ms\nloss 2\ntook 3 ms\n")
    output.begin(ResumedFrom(1, 2))
    assert (
        shown(output, b"pid 7\n" + mark_of(1) + b"took 2 ms\nloss 2\ntook 4 ms\n") == b"pid 7\ntook 2 ms\ntook 4 ms\n"
    )


def test_equal_lines_of_new_steps_are_not_taken_for_repeated_ones():
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    output.take((b"ok\n" + mark_of(1)) + (b"ok\n" + mark_of(2)) + b"ok\n")
    output.begin(ResumedFrom(2, 3))
    assert shown(output, mark_of(2) + b"ok\nok\nok\n") == b"ok\nok\n"


def test_what_was_shown_in_a_step_excuses_nothing_behind_that_step():
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    output.take(mark_of(1) + b"late\n")
    output.begin(ResumedFrom(1, 2))
    # The step is made again without the line. A later step writes it for the first time.
    assert shown(output, mark_of(1) + b"other\n" + mark_of(2) + b"late\n") == b"other\nlate\n"


def test_a_second_kill_in_the_same_step_repeats_nothing_either():
    output = killed_in_step_4()
    output.begin(ResumedFrom(3, 4))
    output.take(b"loading\n" + mark_of(3) + b"step 4\nloss 0.5\n")
    output.begin(ResumedFrom(3, 4))
    assert shown(output, b"load") == b""
    output.begin(ResumedFrom(3, 4))
    assert shown(output, b"loading\n" + mark_of(3) + b"step 4\nloss 0.5\nend\n") == b"end\n"


def test_a_job_that_begins_from_the_beginning_shows_everything():
    output = killed_in_step_4()
    output.begin(ResumedFrom(0, 4))
    assert shown(output, b"loading\nstep 1\n") == b"loading\nstep 1\n"


def test_without_a_mark_of_the_step_everything_after_it_is_shown_again():
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    output.take(mark_of(1) + b"step 2\nstep 3\n")
    output.begin(ResumedFrom(2, 3))
    assert shown(output, mark_of(2) + b"step 3\n") == b"step 3\n"


def test_a_progress_bar_moves_and_its_end_stays():
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    output.take(b"\r10%" + mark_of(1) + b"\r20%\r      \rINFO a\n\r20%")
    output.end()
    output.begin(ResumedFrom(1, 2))
    data = b"\r 0%" + mark_of(1) + b"\r20%\r      \rINFO a\n\r30%"
    assert shown(output, data) == b"\r 0%\r20%\r      \r\r30%"
    assert shown(output, b"\r100%") + shown(output, b"\n") == b"\r100%\n"


def test_a_line_without_an_end_is_held_until_it_is_known_and_is_not_lost():
    output = killed_in_step_4()
    output.begin(ResumedFrom(3, 4))
    assert shown(output, b"Contin") == b""
    assert shown(output, b"ue? " + mark_of(3)) == b"Continue? "
    assert shown(output, b"unfinished") == b"" and output.end() == (b"", b"unfinished")


def test_more_than_is_remembered_is_shown_again():
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    lines = b"".join(b"%07d\n" % number for number in range(REMEMBERED_BYTES // 8 + 9))
    output.take(mark_of(1) + lines)
    output.begin(ResumedFrom(1, 2))
    assert shown(output, mark_of(1) + lines) == lines[: 9 * 8]


@pytest.mark.parametrize("seed", range(50))
def test_whatever_is_written_and_however_it_is_read_every_line_is_shown(seed):
    """A script with few different lines, killed anywhere: the terminal has what an undisturbed run shows, nothing more."""
    dice = random.Random(seed)
    steps = [b"".join(dice.choice([b"a\n", b"b\n", b"a"]) for _ in range(3)) + b"\n" for _ in range(12)]
    output, terminal, kept, begun = RepeatedOutput(), b"", 0, 1
    for attempt in range(4):
        output.begin(ResumedFrom(kept, begun))
        data = b"top\n" + (mark_of(kept) if attempt else b"")
        first, begun = kept, len(steps) if attempt == 3 else min(len(steps), kept + dice.randint(1, 3))
        for number in range(first, begun):
            died = attempt < 3 and number == begun - 1
            data += steps[number] if not died else steps[number][: steps[number].index(b"\n") + 1]
            if not died:
                kept = number + 1
                data += mark_of(kept)
        at = 0
        while at < len(data):
            size = dice.randint(1, 30)
            terminal += shown(output, data[at : at + size])
            at += size
        terminal += output.end()[1]
        if not kept:
            terminal = b""
    assert terminal == b"top\n" + b"".join(steps)


@pytest.mark.parametrize("seed", range(20))
def test_before_a_resume_every_byte_is_shown_at_once(seed):
    dice = random.Random(seed)
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    for number in range(30):
        data = bytes(dice.choice(b"a\r\n\x1f\x00\xff") for _ in range(dice.randint(1, 40)))
        assert output.take(data) == (data, data)
        assert output.take(mark_of(number)) == (b"", b"")
    assert output.end() == (b"", b"")


def test_many_different_lines_are_compared_in_one_pass():
    output = RepeatedOutput()
    output.begin(ResumedFrom(0, 1))
    old = b"".join(b"%06d\n" % number for number in range(30_000))
    output.take(mark_of(1) + old)
    output.begin(ResumedFrom(1, 2))
    new = old.replace(b"\n", b"!\n")
    assert shown(output, mark_of(1) + new + b"029999\n") == new
