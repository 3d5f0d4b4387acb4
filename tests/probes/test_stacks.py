"""Stacks as py-spy and torch's traceback write them. Recorded from torch 2.13, Python 3.11, py-spy 0.4.3; paths made neutral."""

import json
import os
import sys

import pytest

from paceline.probes.stacks import (
    REFUSED,
    Frame,
    dump,
    is_users_file,
    locals_in,
    parse_dump,
    parse_faulthandler,
    parse_native,
    refusal,
)


def test_the_main_thread_is_named_and_its_frames_are_innermost_first(recorded):
    threads = parse_dump(recorded("py_spy_loader.json"), 4711)
    main = next(thread for thread in threads if thread.main)
    assert main.frames[-1] == Frame(file="/home/you/train.py", line=9, function="<module>", users=True)
    assert [frame.function for frame in main.frames[4:7]] == ["get", "_try_get_data", "_get_data"]
    assert [thread.thread for thread in threads if not thread.main] == ["QueueFeederThread"] * 2


def test_native_frames_end_at_the_first_python_frame_and_stay_out_of_the_python_stack(recorded):
    text = recorded("py_spy_native.json")
    native = parse_native(text, 4711)
    assert native[0] == "clock_nanosleep (libc.so.6)"
    assert native[-1].startswith("go ")
    (only,) = parse_dump(text, 4711)
    assert only.owns_gil
    assert only.frames[-2:] == (
        Frame(file="/home/you/train.py", line=11, function="go", users=True),
        Frame(file="/home/you/train.py", line=15, function="<module>", users=True),
    )


def test_a_traceback_lists_the_main_thread_last(recorded):
    feeder, main = parse_faulthandler(recorded("faulthandler"), 4711)
    assert main.main and main.frames[0] == Frame(file="/home/you/train.py", line=12, function="go", users=True)
    assert not feeder.main and feeder.owns_gil is None and (feeder.pid, main.pid) == (4711, 4711)


@pytest.mark.parametrize("text", ["", "{}", "null", "[", '"text"'])
def test_what_is_no_dump_is_refused(text):
    with pytest.raises(ValueError):
        parse_dump(text, 1)


@pytest.mark.parametrize("text", ["[]", "[1]", '[{"frames": 3}]', '[{"frames": [null, {}]}]'])
def test_a_dump_without_what_is_needed_is_read_as_far_as_it_goes(text):
    assert all(not frame.file for thread in parse_dump(text, 1) for frame in thread.frames)


@pytest.mark.parametrize(
    "path",
    [
        "/usr/lib/python3.11/socket.py",
        "/opt/conda/lib/python3.12/threading.py",
        "/home/you/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "<frozen importlib._bootstrap>",
        "<string>",
        "",
        os.path.realpath(sys.modules["paceline"].__file__),
    ],
)
def test_code_that_is_not_the_users(path):
    assert not is_users_file(path)


@pytest.mark.parametrize(
    "path", ["/home/you/train.py", "train.py", "/opt/ml/code/lib/python/train.py", "/tmp/python3.py"]
)
def test_code_that_is_the_users(path):
    assert is_users_file(path)


def test_missing_rights_are_said_with_what_would_give_them():
    said = refusal("Permission Denied: Try running again with elevated permissions by going 'sudo env ...'")
    assert said.startswith(REFUSED) and "CAP_SYS_PTRACE" in said and "ptrace_scope=0" in said


def test_any_other_refusal_is_one_line_without_a_backtrace():
    text = (
        "Error: Failed to get process executable name.\n\nCaused by:\n  gone\n\nStack backtrace:\n   0: <E as anyhow>"
    )
    assert refusal(text) == "py-spy: Error: Failed to get process executable name. Caused by: gone"


def test_a_py_spy_that_cannot_be_started_is_a_reason_and_no_error():
    assert "cannot be started" in dump(os.getpid(), timeout_seconds=1, program="/nowhere/py-spy").reason


@pytest.mark.parametrize(
    ("function", "names", "found"),
    [
        ("recv", ("src",), {"src": "1"}),
        ("recv", ("src", "dst", "group_src"), {"src": "1", "group_src": "None"}),
        ("recv", (), {}),
        ("send", ("dst",), {}),
    ],
)
def test_only_the_named_variables_of_the_named_function_are_kept(function, names, found):
    values = [
        {"name": "tensor", "addr": 7, "repr": "secret"},
        {"name": "src", "repr": "1"},
        {"name": "group_src", "repr": "None"},
        "nothing",
    ]
    frame = {"name": "recv", "filename": "/lib/torch/distributed/distributed_c10d.py", "line": 9, "locals": values}
    text = json.dumps([{"thread_name": "MainThread", "frames": [{"name": "f", "filename": "/t.py"}, frame]}])
    assert locals_in(text, function, "distributed_c10d.py", names) == found


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"frames": 3}]', '[{"frames": [{"name": "recv", "locals": 3}]}]'])
def test_what_is_no_dump_has_no_variables(text):
    try:
        assert locals_in(text, "recv", "", ("src",)) == {}
    except ValueError:
        assert text in ("", "{}")
