"""A recording with a value of another kind in any field of any document: each verb answers, or refuses in four parts by one door."""

import json
import math
import os
import shutil
from pathlib import Path

import pytest

from paceline.cli import main
from paceline.facts import host_key
from paceline.recording.evidence import evidence
from paceline.recording.jsonl import json_object, record_of
from paceline.recording.runs import read_document

RUNS = Path(__file__).parent.parent / "data/runs"
VALUES = (
    "x", -1, 2**80, 10**6000, 1e308, math.nan, math.inf, -math.inf, None, [], {}, [[1]], {"a": {"b": 1}}, True,
    "\ud800", "1" * 5000, [None], ""
)  # fmt: skip
VERBS = (
    "report -o page.html",
    "report --format trace --json -o trace.json",
    "top --once",
    "why",
    "ps",
    "report --format prometheus",
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


def fields(value, place=()):
    """The place of each field of a document; of a list, those of its first element."""
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, part in inner:
        yield from fields(part, (*place, key))


def changed(document, place, value):
    if not place:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[place[0]] = changed(copy[place[0]], place[1:], value)
    return copy


def documents(run):
    """The name, the line and the places of each kind of document of a recording, each field once."""
    seen = set()
    for path in sorted((RUNS / run).rglob("*.json*")):
        texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        for line, text in enumerate(texts):
            document = json.loads(text)
            for place in fields(document):
                key = (path.name, document.get("event"), *place)
                if key not in seen:
                    seen.add(key)
                    yield path.relative_to(RUNS / run), line, place


def written(document):
    """As JSON, whole numbers of any length included, which Python alone refuses to write."""
    return json.dumps(document).replace('"long"', "1" + "0" * 6000)


def laid(run, path, line, place, value):
    """The recording in the current directory, with one field changed."""
    target = Path(".paceline/runs") / run
    shutil.copytree(RUNS / run, target, copy_function=os.link)
    file = target / path
    texts = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    texts[line] = written(changed(json.loads(texts[line]), place, "long" if value == 10**6000 else value))
    file.unlink()
    file.write_text("\n".join(texts) + "\n")
    return target


def answered(argv, capsys):
    """The exit code; a refusal has its four parts."""
    words = argv.split()
    code = main(words)
    said = capsys.readouterr()
    if code and "--json" in words:
        refusal = json.loads(said.out)
        assert all(refusal[part] for part in ("code", "what", "saw", "next", "more")), refusal
    elif code:
        assert said.err.startswith("error[") and all(f"\n  {part}" in said.err for part in ("saw", "next", "more")), (
            said
        )
    return code


TURNS = [
    (run, *document, VALUES[number % len(VALUES)], VERBS[number // len(VALUES) % len(VERBS)])
    for run in ("hang", "restart")
    for number, document in enumerate(documents(run))
]


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "depth", [1, 2, pytest.param(3, marks=pytest.mark.wide), pytest.param(99, marks=pytest.mark.wide)]
)
def test_each_field_of_each_document_in_turn_has_a_value_of_another_kind(depth, capsys):
    """Field by field with the next value and verb: with `wide` the deep ones too."""
    for run, path, line, place, value, argv in TURNS:
        if len(place) != depth and (depth < 99 or len(place) < 4):
            continue
        target = laid(run, path, line, place, value)
        answered(argv, capsys)
        shutil.rmtree(target)


@pytest.mark.parametrize("argv", [*VERBS, "logs", "stack", "compare hang hang", "top --once --json"])
def test_of_a_recording_whose_files_are_pipes_every_verb_answers(argv, capfd):
    target = Path(".paceline/runs/hang")
    shutil.copytree(RUNS / "hang", target)
    for path in [path for path in target.rglob("*") if path.is_file()]:
        path.unlink()
        os.mkfifo(path)
    assert main(argv.split()) in (0, 2, 3)
    said = capfd.readouterr()
    assert "Traceback" not in said.err and (said.out or said.err)


@pytest.mark.parametrize(
    "argv", ["report -o page.html", "report --format trace --json -o trace.json", "why", "top --once"]
)
@pytest.mark.parametrize("value", [5, "x", [5], [{}], [{"host": 5, "first_rank": "a", "ranks": 2}] * 2], ids=repr)
def test_where_no_reader_takes_a_value_the_refusal_names_the_place(argv, value, capsys):
    events = (RUNS / "hang/events.jsonl").read_text().splitlines()
    line = next(number for number, text in enumerate(events) if json.loads(text)["event"] == "attempt_started")
    laid("hang", Path("events.jsonl"), line, ("hosts",), value)
    assert answered(argv, capsys) in (0, 3)


def test_an_error_in_a_verb_that_reads_no_recording_is_no_refusal_of_a_recording(monkeypatch):
    monkeypatch.setattr("paceline.parts.plan.cli.instances.show", lambda args: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        main(["plan", "--instances"])


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e101", "1" + "0" * 25, "-" + "9" * 6000, "1" * 21]
)
def test_a_number_that_nothing_counts_is_not_known(tmp_path, text):
    line = b'{"a": %s, "b": [%s, 1], "c": 2}' % (text.encode(), text.encode())
    assert json_object(line) == record_of(line) == {"a": None, "b": [None, 1], "c": 2}
    (tmp_path / "one.json").write_bytes(line)
    assert read_document(tmp_path / "one.json")["a"] is None


@pytest.mark.parametrize("number", [0, -1, 2**63, 2**64 - 1, 1.5, 1e99, -1e-300, 1_800_000_000_000_000_000, 0.1 + 0.2])
def test_every_number_that_a_recorder_writes_is_itself(number):
    """Beside a number that is refused too, where another reader is at work."""
    for more in ("1", "1e999"):
        assert json_object(f'{{"a": {json.dumps(number)}, "b": {more}}}'.encode())["a"] == number


def test_a_name_of_a_host_that_is_all_digits_is_sorted():
    names = ["1" * 5000, "algo-2", "algo-10", "2"]
    assert sorted(names, key=host_key)[-2:] == ["algo-2", "algo-10"]


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir() if path.is_dir()))
def test_a_recording_of_ours_is_read_as_before(run):
    """No number of a real recording meets the bounds."""
    for path in (RUNS / run).rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            assert record_of(line) == json.loads(line)
    assert evidence(RUNS / run).run.id
