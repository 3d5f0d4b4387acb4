"""A run as Prometheus reads it."""

import json
import re
from pathlib import Path

import pytest

from paceline.cli import main
from paceline.diagnosis.case import Case
from paceline.diagnosis.verdict import Diagnosis
from paceline.facts import Evidence, RankRecord, Run
from paceline.parts.web.views.metrics import Metric, metrics, metrics_text
from paceline.views.pace import Pace, RankPace

ROOT = Path(__file__).parents[4]
ASLEEP = str(ROOT / "tests/recording/data/before/asleep")
SAMPLE = re.compile(r'[a-z_]+\{run="[^"]*"(,[a-z_]+="(?:[^"\\\n]|\\[\\"n])*")*\} -?[0-9.e+-]+')


def values(text):
    """Series -> value, of a text whose every line is one that Prometheus reads."""
    found, declared = {}, set()
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, *_ = line.split(" ")
            assert word in ("HELP", "TYPE") and (word, name) not in declared
            declared.add((word, name))
            continue
        assert SAMPLE.fullmatch(line), line
        series, _, value = line.rpartition(" ")
        assert ("TYPE", series.partition("{")[0]) in declared and series not in found
        found[series] = float(value)
    return found


def test_the_metrics_of_a_hang_say_what_why_says(capsys):
    assert main(["report", "--format", "prometheus", ASLEEP]) == 0
    found = values(capsys.readouterr().out)
    run = 'run="r-4ff4d0"'
    assert found[f"paceline_steps_total{{{run}}}"] == 12
    assert found[f'paceline_finding{{{run},code="N01",level="stall"}}'] == 1
    assert found[f'paceline_run_status{{{run},status="Failed"}}'] == 1
    assert found[f'paceline_rank_step_seconds{{{run},rank="1",host="localhost"}}'] == pytest.approx(0.0254, abs=1e-3)
    assert f"paceline_ranks{{{run}}}" not in found, "of a run that has ended, nobody counts who is here"


def test_the_metrics_are_written_to_a_file_whole(tmp_path, capsys):
    assert main(["report", "--format", "prometheus", ASLEEP, "-o", str(tmp_path / "run.prom")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'run.prom'}\n"
    assert "\npaceline_steps_total{" in (tmp_path / "run.prom").read_text()


def test_json_has_the_same_values(capsys):
    assert main(["report", "--format", "prometheus", ASLEEP, "--json", "--worst", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [one["name"] for one in found["metrics"]]
    assert found["schema"] == "paceline.metrics/1" and len(names) == len(set(names))
    assert not any(name.startswith("paceline_rank_") for name in names)


def a_job(ranks, attempts):
    run = Run(id="r-1", name="", directory="/r", command=(), started_ns=1, first_host="a")
    records = tuple(
        RankRecord(host="a", rank=rank, attempt=attempt, step_count=10, step_seconds=1.0, data_seconds=0.1)
        for attempt in range(attempts)
        for rank in range(ranks)
    )
    now = Pace(
        ranks=tuple(RankPace(host="a", rank=rank, step_seconds=0.1, own_seconds=0.1 + rank) for rank in range(ranks))
    )
    evidence = Evidence(run=run, hosts=("a",), ranks=records, events=(), telemetry={})
    made = metrics(evidence, Case(run=run, now_ns=2, lasts=True), Diagnosis(findings=()), now, (), now_ns=2, ranks=8)
    return values(metrics_text(made))


def test_counters_do_not_fall_over_a_restart():
    before, after = a_job(2, 1), a_job(2, 2)
    counters = [series for series in before if "_total{" in series]
    assert counters and all(after[series] >= before[series] for series in counters)


def test_a_job_of_many_ranks_has_no_more_series_than_one_of_eight():
    found = a_job(4096, 1)
    assert len(found) == len(a_job(8, 1))
    assert 'paceline_rank_step_seconds{run="r-1",rank="4095",host="a"}' in found


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "a\x1b[31mb", "\u202e", "}", ""])
def test_whatever_a_label_says_the_line_stays_a_line(text):
    made = metrics_text([Metric("paceline_finding", "gauge", text, (({"run": "r-1", "code": text}, 1.0),))])
    assert len(made.splitlines()) == 3 and SAMPLE.fullmatch(made.splitlines()[2])


def test_the_page_names_every_metric():
    page = (ROOT / "docs/howto/metrics.md").read_text()
    source = (ROOT / "src/paceline/parts/web/views/metrics.py").read_text()
    for name in re.findall(r'"(paceline_[a-z_]+)"', source):
        assert name in page, name
