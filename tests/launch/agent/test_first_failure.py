"""Which of the files and texts that a dying rank leaves tells why it died."""

import json

from paceline.launch.agent.exit_reason import error_of


def leave(directory, name, **fields):
    record = {"type": "ValueError", "message": "no", "time_ns": 10, "file": "t.py", "line": 3, **fields}
    (directory / name).write_text(json.dumps(record))


def test_the_process_own_error_file_comes_first(tmp_path):
    leave(tmp_path, "7.json", message="mine")
    error = error_of(tmp_path, 7, set(), 0, "", 99)
    assert error is not None and (error.message, error.time_ns) == ("mine", 10)


def test_an_mp_spawn_child_speaks_for_its_parent(tmp_path):
    leave(tmp_path, "7.json", type="ProcessRaisedException", time_ns=30)
    leave(tmp_path, "9.json", message="the child's", time_ns=20)
    error = error_of(tmp_path, 7, set(), 0, "", 99)
    assert error is not None and error.message == "the child's"


def test_another_workers_file_is_not_taken(tmp_path):
    leave(tmp_path, "8.json")
    assert error_of(tmp_path, 7, {8}, 0, "", 99) is None


def test_torchs_own_record_file_is_read(tmp_path):
    callstack = (
        'Traceback (most recent call last):\n  File "/home/me/t.py", line 3, in main\n    f()\nValueError: recorded\n'
    )
    record = {
        "message": {"message": "ValueError: recorded", "extraInfo": {"py_callstack": callstack, "timestamp": "1"}}
    }
    (tmp_path / "torchelastic_2.json").write_text(json.dumps(record))
    error = error_of(tmp_path, 7, set(), 2, "", 99)
    assert error is not None and (error.type, error.line) == ("ValueError", 3)


def test_what_was_printed_is_read_where_no_file_was_left(tmp_path):
    printed = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  8 vs 4. collective mismatch\n"
    )
    error = error_of(tmp_path, 7, set(), 0, printed, 99)
    assert error is not None and (error.type, error.message) == ("gloo::EnforceNotMet", "8 vs 4. collective mismatch")


def test_a_file_that_was_cut_off_is_as_good_as_none(tmp_path):
    (tmp_path / "7.json").write_text('{"type": "Val')
    assert error_of(tmp_path, 7, set(), 0, "", 99) is None


def test_a_file_that_the_script_wrote_in_its_own_way_still_gives_a_reason(tmp_path):
    (tmp_path / "torchelastic_0.json").write_text('{"message": {"message": "Odd: text", "extraInfo": "none"}}')
    error = error_of(tmp_path, 7, set(), 0, "", 99)
    assert error is not None and (error.type, error.message) == ("Odd", "text")
