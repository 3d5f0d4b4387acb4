"""S17 as a stall: a rank that others wait for waits for its own pages."""

import pytest

from paceline.diagnosis.snapshots import HostSnapshot
from paceline.findings import Unknown
from paceline.probes.system_calls import PAGE_FAULT

MIB = 1 << 20
FULL = {"memory_used_bytes": 38 * MIB, "memory_limit_bytes": 40 * MIB}
FAULTS = {"state": "D", "system_call": PAGE_FAULT, "major_faults_per_second": 120.0}


@pytest.fixture
def said(rule_of):
    def of(case):
        told, rule = [], rule_of("s17_memory_pressure").RULE
        with pytest.raises(Unknown):
            for finding in rule.find(case):
                told.append(finding)
        return told

    return of


def test_a_rank_at_its_limit_that_reads_its_pages_again_is_named(said, case, snapshot):
    (finding,) = said(case(snapshots=[snapshot(1, **FULL, **FAULTS)]))
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "stall", "high")
    assert finding.saw[:2] == ("120 page faults a second wait for a disk", "its control group has 38 of 40 MiB")


@pytest.mark.parametrize(
    ("seen", "pressure"),
    [
        ({**FULL, "state": "D", "system_call": PAGE_FAULT}, None),
        ({**FULL, "major_faults_per_second": 9.0}, None),
        (FAULTS, 0.3),
    ],
    ids=["in a fault", "many faults", "of its host"],
)
def test_one_of_the_signs_is_likely(said, case, snapshot, seen, pressure):
    host = HostSnapshot(host="algo-1", at_ns=0, pressure_memory=pressure)
    (finding,) = said(case(snapshots=[snapshot(1, **seen)], host_snapshots=[host]))
    assert finding.confidence == "likely"


@pytest.mark.parametrize(
    "seen",
    [
        FULL,
        FAULTS,
        {**FULL, "major_faults_per_second": 1.0},
        {**FAULTS, "memory_used_bytes": 10 * MIB, "memory_limit_bytes": 40 * MIB},
        {**FAULTS, "memory_used_bytes": 10 * MIB, "memory_limit_bytes": None},
    ],
    ids=["full alone", "faults alone", "few faults", "room left", "no limit"],
)
def test_memory_that_is_full_or_pages_that_are_read_alone_are_no_reason(said, case, snapshot, seen):
    quiet = HostSnapshot(host="algo-1", at_ns=0, pressure_memory=0.01)
    assert said(case(snapshots=[snapshot(1, **seen)], host_snapshots=[quiet])) == []
