"""Files that grow, are cut, replaced and removed between two reads."""

import json
import os
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.recording.follow import FollowedFiles, FollowedLines, GrowingFile
from paceline.recording.jsonl import read_json_lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def line(number, more=""):
    return json.dumps({"n": number, "text": more}).encode() + b"\n"


def test_only_what_was_appended_is_read_again(path):
    path.write_bytes(line(1) + line(2))
    growing = GrowingFile(path, 1 << 20, 1 << 20)
    first = growing.read()
    assert first is not None and [text for _, text in first.lines] == [line(1), line(2)] and first.is_new
    with path.open("ab") as file:
        file.write(line(3))
    second = growing.read()
    assert second is not None and second.lines == [(len(line(1) + line(2)), line(3))] and not second.is_new


def test_a_file_that_has_not_changed_is_not_opened(path):
    path.write_bytes(line(1))
    followed = FollowedLines(path)
    assert followed.read() == ([{"n": 1, "text": ""}], [])
    path.chmod(0)
    assert followed.read() == ([{"n": 1, "text": ""}], []) and followed.change_count == 1


def test_a_torn_last_line_is_said_and_read_once_it_is_whole(path):
    whole = line(2)
    path.write_bytes(line(1) + whole[:5])
    followed = FollowedLines(path)
    assert followed.read() == ([{"n": 1, "text": ""}], ["events.jsonl: the last line is cut off"])
    with path.open("ab") as file:
        file.write(whole[5:])
    assert followed.read() == ([{"n": 1, "text": ""}, {"n": 2, "text": ""}], [])


def test_a_file_that_was_cut_and_grew_beyond_its_old_length_is_read_anew(path):
    path.write_bytes(line(1) + line(2))
    followed = FollowedLines(path)
    followed.read()
    path.write_bytes(line(3) + line(4) + line(5))
    assert [record["n"] for record in followed.read()[0]] == [3, 4, 5]


def test_another_file_of_the_same_name_is_read_anew(path, tmp_path):
    path.write_bytes(line(1))
    followed = FollowedLines(path)
    followed.read()
    (tmp_path / "new").write_bytes(line(1) + line(7))
    os.replace(tmp_path / "new", path)
    assert [record["n"] for record in followed.read()[0]] == [1, 7]


def test_a_file_that_is_removed_has_no_records_and_one_that_comes_back_has(path):
    followed = FollowedLines(path)
    assert followed.read() == ([], []) and followed.change_count == 0
    path.write_bytes(line(1))
    assert len(followed.read()[0]) == 1
    path.unlink()
    assert followed.read() == ([], [])
    path.write_bytes(line(2))
    assert followed.read() == ([{"n": 2, "text": ""}], [])


def test_what_cannot_be_read_is_said(path):
    path.mkdir()
    assert FollowedLines(path).read() == ([], ["events.jsonl: not an ordinary file"]) == read_json_lines(path)


def test_the_middle_of_a_long_file_is_left_out_as_when_it_is_read_whole(path):
    with path.open("wb") as file:
        file.writelines(line(number, "x" * (1 << 20)) for number in range(30))
    followed = FollowedLines(path)
    assert len(followed.read()[0]) == 30
    with path.open("ab") as file:
        file.writelines(line(number, "x" * (1 << 20)) for number in range(30, 60))
    found, complaints = followed.read()
    assert (found, complaints) == read_json_lines(path) == FollowedLines(path).read()
    assert found[0]["n"] == 0 and found[-1]["n"] == 59 and "in its middle were not read" in complaints[0]


def test_of_many_lines_the_first_and_the_last_are_kept(path):
    path.write_bytes(b"".join(line(number) for number in range(40_000)))
    found, complaints = FollowedLines(path).read()
    assert (found, complaints) == read_json_lines(path)
    assert len(found) == 32_000 and found[-1]["n"] == 39_999


def test_several_files_are_followed_each_by_itself(tmp_path):
    followed = FollowedFiles()
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(line(1) + line(2))
    assert [record["n"] for record in followed.read_json_lines(tmp_path / "a")[0]] == [1, 2]
    assert [record["n"] for record in followed.read_json_lines(tmp_path / "b", tail_bytes=len(line(2)) + 1)[0]] == [2]
    before = followed.change_count
    followed.read_json_lines(tmp_path / "a")
    assert followed.change_count == before


# What happens to a file between two reads: bytes are appended, it is cut to a share of its length, written anew, replaced, removed.
TEXTS = st.lists(
    st.sampled_from(["{}\n", "\n", "\r\n", '{"n": %d}\n', '{"n": %d}', "[%d]\n", "%d broken\n", '{"n": "%d']),
    max_size=6,
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "write", "replace"]), TEXTS),
        st.tuples(st.just("cut"), st.floats(0, 1)),
        st.tuples(st.sampled_from(["remove", "nothing"]), st.none()),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(changes=CHANGES, tail=st.one_of(st.none(), st.integers(1, 60)))
def test_whatever_happens_to_a_file_it_is_as_if_it_were_read_whole(tmp_path_factory, changes, tail):
    folder = tmp_path_factory.mktemp("followed")
    path, number = folder / "events.jsonl", count(1000)
    followed = FollowedLines(path, tail)
    for change, what in changes:
        # No two lines are alike: those of a recording have times.
        text = "".join(one % next(number) if "%d" in one else one for one in what) if isinstance(what, list) else ""
        if change == "append":
            with path.open("a") as file:
                file.write(text)
        elif change in ("write", "replace"):
            # The first line is one that no file before had.
            text = f'{{"file": {next(number)}}}\n{text}'
            place = path if change == "write" else folder / "new"
            place.write_text(text)
            os.replace(place, path)
        elif change == "cut" and path.exists():
            os.truncate(path, int(path.stat().st_size * what))
        elif change == "remove":
            path.unlink(missing_ok=True)
        if path.exists() and change != "nothing":
            # A clock of 4 ms could give two changes one time.
            os.utime(path, ns=(next(number), next(number)))
        assert followed.read() == read_json_lines(path, tail_bytes=tail)
