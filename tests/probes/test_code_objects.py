"""The table of lines of a code object says what Python itself says, and no bytes make its reader raise or go on without an end."""

import argparse
import dataclasses
import inspect
import json.decoder
import os
import random
import sys
import types

import pytest

from paceline.probes.code_objects import CodeObjects, line_at
from paceline.probes.remote_memory import RemoteMemory


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def every_code():
    for module in (argparse, dataclasses, json.decoder):
        yield from code_objects(compile(inspect.getsource(module), module.__file__, "exec"))


def test_each_instruction_is_in_the_line_that_python_names():
    compared = 0
    for code in every_code():
        for begin, end, line in code.co_lines():
            for instruction in {begin, end - 2}:
                assert line_at(code.co_linetable, code.co_firstlineno, instruction) == line
                compared += 1
        assert line_at(code.co_linetable, code.co_firstlineno, len(code.co_code)) is None
    assert compared > 5_000


@pytest.mark.parametrize("seed", range(50))
def test_no_bytes_make_its_reader_raise(seed):
    drawn = random.Random(seed)
    table = drawn.randbytes(drawn.randrange(200))
    for instruction in (0, 2, 100, 1 << 30, -2):
        found = line_at(table, 1, instruction)
        assert found is None or isinstance(found, int)


def ünïcode_näme():
    """A function whose name is no ASCII."""


@pytest.mark.parametrize("function", [line_at, ünïcode_näme, test_no_bytes_make_its_reader_raise, dataclasses.field])
def test_a_code_object_in_memory_is_read_as_it_is(function):
    code = function.__code__
    found = CodeObjects(RemoteMemory(os.getpid())).line(id(code), 0)
    assert (found.file, found.function) == (code.co_filename, code.co_name)
    assert found.line == next(iter(code.co_lines()))[2]


def test_what_is_no_code_object_has_no_line():
    codes = CodeObjects(RemoteMemory(os.getpid()))
    assert codes.minor == sys.version_info.minor
    for address in (0, 8, 1 << 46, id(object()), id("text"), id(codes), (1 << 64) - 8):
        assert codes.line(address, 0) is None
