"""What was seen of broken and of healthy jobs, judged by the rules of today; `python bench/attached.py --keep NAME` records one."""

import json
import lzma
from pathlib import Path

import pytest

from paceline.attach.evidence import HostEvidence
from paceline.attach.judge import judge
from paceline.facts import Run
from paceline.recording.fact_json import from_plain
from paceline.rules import all_causes

KEPT = sorted((Path(__file__).parent / "recorded").glob("*.json.xz"))
ALARMS = ("stall", "divergence", "crash", "start")


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name.removesuffix(".json.xz"))
def test_what_was_seen_of_a_job_says_who_and_why(path):
    kept = json.loads(lzma.decompress(path.read_bytes()))
    seen = from_plain(HostEvidence, kept["evidence"])
    run = Run(id="pid:1", name=seen.job, directory="", command=(), started_ns=1, first_host=seen.host)
    findings = [
        one for one in judge([seen], run, all_causes()).diagnosis.findings if one.level not in ("slow", "quality")
    ]
    if not kept["codes"]:
        assert [one for one in findings if one.level in ALARMS] == []
        return
    assert findings[0].code in kept["codes"]
    assert kept["ranks"] is None or sorted(findings[0].ranks) in kept["ranks"]


def test_some_are_kept():
    assert len(KEPT) >= 12
