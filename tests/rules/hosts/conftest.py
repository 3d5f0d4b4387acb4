"""Hosts before a job: right ones, changed by each test in what it is about."""

from dataclasses import replace

import pytest

from paceline.findings import Judgement
from paceline.rules.host_facts import HostFacts, HostsBefore, host_verdicts

RIGHT = HostFacts(
    name="algo-1",
    python="3.11.7",
    torch="2.13.0",
    paceline="0.1.0",
    cpu_count=8,
    open_files=65536,
    shm_bytes=8 << 30,
    run_dir="/runs",
    run_dir_bytes=50 << 30,
    own_address="10.0.0.2",
    gpus=(),
)


@pytest.fixture
def found():
    """What the check with this code finds of hosts that are right but for these fields; `also`: a second host's."""

    def of(code, *, also=None, hosts=1, ranks=2, links=(), **fields):
        told = (replace(RIGHT, **fields), *((replace(RIGHT, name="algo-2", **also),) if also is not None else ()))
        before = HostsBefore(hosts=told, host_count=max(hosts, len(told)), ranks_per_host=ranks, links=links)
        verdict = next(one for one in host_verdicts(before) if one.code == code)
        return verdict.missing if verdict.judgement is Judgement.NOT_JUDGED else verdict.findings

    return of
