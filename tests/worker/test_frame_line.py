import sys

import pytest

from paceline.worker.frame_line import line_of

LINES = """
def loop(look):
    for _ in range(2):
        if look:
            found = look()
    return found
"""


def compiled():
    space = {}
    exec(compile(LINES, "loop.py", "exec"), space)
    return space["loop"]


def test_the_line_of_a_frame_is_the_one_that_python_gives():
    assert compiled()(lambda: line_of(sys._getframe(1))) == 5


def test_a_frame_without_lines_is_at_its_function():
    loop = compiled()
    loop.__code__ = loop.__code__.replace(co_linetable=b"")
    assert loop(lambda: line_of(sys._getframe(1))) == 2


@pytest.mark.parametrize("offset_of_line", [3, 4, 5])
def test_between_two_lines_it_is_the_one_before(offset_of_line):
    class Frame:
        f_lineno = None
        f_code = compiled().__code__
        f_lasti = max(end - 2 for _, end, line in f_code.co_lines() if line == offset_of_line)

    assert line_of(Frame) == offset_of_line
