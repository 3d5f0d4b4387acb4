"""Ten thousand runs: the newest are shown, the rest is said to be there."""

import json
import time

import pytest
from web_recordings import get, make_app, record

from paceline.parts.web.serve.run_list import RunList, Wish
from paceline.recording.runs import KnownRuns, list_runs
from paceline.views.units import count

MANY = 10_000


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """As many recordings as a busy year makes, each with a run.json alone."""
    root = tmp_path_factory.mktemp("many") / "runs"
    for number in range(MANY):
        path = root / f"r-{number:06x}"
        path.mkdir(parents=True)
        document = {
            "schema": "paceline.run/2",
            "run_id": path.name,
            "name": f"job{number}",
            "command": ["paceline"],
            "started_ns": 10**18 + number,
        }
        (path / "run.json").write_text(json.dumps(document))
    return root


def test_of_ten_thousand_runs_the_newest_are_shown_and_the_rest_is_said(many, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    app = make_app(many)
    html = json.loads(get(app, "/api/runs").body)["html"]["runs"]
    assert html.count("<tr>") == 201 and f"200 runs of {count(MANY)}<" in html and "9800 older runs" in html
    assert html.index(f"r-{MANY - 1:06x}") < html.index(f"r-{MANY - 2:06x}") and "r-000000" not in html
    one = json.loads(get(app, "/api/runs?find=job17").body)["html"]["runs"]
    assert "job17<" in one and "job18<" not in one


def test_a_list_that_is_known_is_listed_in_little_time(many, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    runs = RunList(many, make_app(many).readers.listed)
    began = time.process_time()
    while any(row.listed is None for row in runs.listing(Wish()).rows):
        continue
    known = time.process_time()
    runs.listing(Wish())
    assert time.process_time() - known < (known - began) / 4


def test_each_answer_reads_for_a_short_time_and_the_next_goes_on(many, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    read = []

    def slow(path):
        read.append(path)
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
        return make_app(many).readers.listed(path)

    runs = RunList(many, slow)
    first = runs.listing(Wish(limit=20))
    assert 0 < len(read) < 10 and first.rows[-1].listed is None
    before = len(read)
    runs.listing(Wish(limit=20))
    assert len(read) > before and len(set(read)) == len(read)


def test_the_list_is_that_of_the_verb(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "runs"
    known = KnownRuns(root)
    assert known.newest_first() == []
    for number in range(3):
        record(root, f"r-00000{number}", started_ns=10**18 + number)
        assert known.newest_first() == list_runs(root)
    (root / "r-000001").rename(tmp_path / "elsewhere")
    assert known.newest_first() == list_runs(root)
