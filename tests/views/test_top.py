"""A run at one moment."""

from dataclasses import replace

import pytest

from paceline.diagnosis.run_state import run_state
from paceline.facts import Evidence, RankExit, RankRecord, Run, SecondaryStatus, Status
from paceline.views.host_load import host_loads, run_loads
from paceline.views.pace import pace
from paceline.views.ps import ListedRun, ps_facts, ps_text
from paceline.views.top import top_facts, top_line, top_line_header, top_text

SECOND = 1_000_000_000
STARTED = 1_795_000_000 * SECOND
NOW = STARTED + 100 * SECOND
GIB = 2**30


def sample(t_ns, *, received=0, sent=0, written=0, **sections):
    return {
        "t_ns": t_ns,
        "cpu": {"busy_fraction": 0.51},
        "memory": {"used_bytes": 3 * GIB, "total_bytes": 8 * GIB},
        "network": {
            "eth0": {"received_bytes": received, "sent_bytes": sent},
            "lo": {"received_bytes": t_ns, "sent_bytes": 1},
        },
        "disk": {"vda": {"read_bytes": 0, "written_bytes": written}},
    } | sections


TELEMETRY = {"node05": (sample(SECOND), sample(2 * SECOND, received=1_200_000, sent=3_400, written=7_000_000))}


def rank(number, **fields):
    values = {
        "host": "node05",
        "rank": number,
        "attempt": 0,
        "pid": 100 + number,
        "world_size": 4,
        "step_count": 1000,
        "step_seconds": 412.0,
        "data_seconds": 8.0,
        "communication_seconds": 16.0,
        "checkpoint_seconds": 0.0,
    }
    return RankRecord(**(values | fields))


@pytest.fixture
def lasting():
    run = Run(
        id="r-7f3a91",
        name="train",
        directory="d",
        command=("train.py",),
        started_ns=STARTED,
        first_host="node05",
        secondary_status=SecondaryStatus.TRAINING,
    )
    ranks = (rank(0), rank(1, communication_seconds=4.0))
    return Evidence(run=run, hosts=("node05", "algo-2"), ranks=ranks, events=(), telemetry=TELEMETRY)


def test_the_picture(lasting):
    loads = host_loads(lasting.hosts, TELEMETRY)
    assert top_text(lasting, pace(lasting.ranks), loads, now_ns=NOW) == (
        "r-7f3a91  train  InProgress (Training)  on 2 hosts\n"
        " step 1 000  412 ms  |  data 2%  exposed comm 2%  ckpt 0%  |  2/4 ranks  spread 1.01×  |  00:01:40\n"
        "\n"
        "HOST    CPU              MEMORY    NET IN   NET OUT      DISK  GPU  GPU MEMORY  GPU POWER\n"
        "node05  51%  3.0 GiB of 8.0 GiB  1.2 MB/s  3.4 kB/s  7.0 MB/s    -           -          -\n"
        "algo-2    -                   -         -         -         -    -           -          -\n"
        "\n"
        "RANK  HOST     STEP  MS/STEP  LATE  DATA  COMM  CKPT  STATE\n"
        "   0  node05  1 000      412    0%    2%    4%    0%  running\n"
        "   1  node05  1 000      412    3%    2%    1%    0%  running"
    )


def test_columns_of_which_nothing_is_known_give_way_on_a_narrow_terminal(lasting):
    text = top_text(lasting, pace(lasting.ranks), host_loads(("node05",), TELEMETRY), now_ns=NOW, width=70)
    assert "HOST    CPU              MEMORY    NET IN   NET OUT      DISK\n" in text


def test_on_a_narrow_terminal_whole_columns_give_way_and_no_name_or_number_is_cut(lasting):
    loads = host_loads(("node05",), TELEMETRY)
    for width in (46, 52, 60):
        text = top_text(lasting, pace(lasting.ranks), loads, now_ns=NOW, width=width)
        tables = text.splitlines()[3:]
        assert max(map(len, tables)) <= width and "…" not in "".join(tables)
        assert "node05" in text and "3.0 GiB of 8.0 GiB" in text and "running" in text
    assert "DISK" not in text and "NET IN" in text and "LATE" in text


def test_of_many_ranks_the_slowest_is_never_left_out(lasting):
    ranks = tuple(rank(number) for number in range(60)) + (rank(60, communication_seconds=0.0),)
    many = replace(lasting, ranks=ranks)
    lines = top_text(many, pace(ranks), (), now_ns=NOW, height=14).splitlines()
    assert len(lines) <= 14
    assert lines[-2].split()[0] == "60"
    assert lines[-1] == "55 more ranks"


def test_ranks_that_ended_say_how(lasting):
    ended = tuple(
        rank(number, exit=RankExit(host="node05", rank=number, attempt=0, code=code, time_ns=1))
        for number, code in enumerate((0, 3, -9))
    )
    text = top_text(replace(lasting, ranks=ended), pace(ended), (), now_ns=NOW)
    assert [line.split("  ")[-1] for line in text.splitlines()[-3:]] == ["exit 0", "exit 3", "signal 9"]


def test_a_rank_of_a_run_that_is_over_is_not_called_here(lasting):
    over = replace(lasting, run=replace(lasting.run, status=Status.FAILED, reason="agent gone: pid 1 no longer exists"))
    text = top_text(over, pace(over.ranks, ended=True), (), now_ns=NOW)
    assert [line.split()[-1] for line in text.splitlines()[-2:]] == ["-", "-"]


def test_the_line_of_a_file_has_fixed_columns(lasting):
    loads = host_loads(lasting.hosts, TELEMETRY)
    assert top_line_header() + "\n" + top_line(pace(lasting.ranks), loads, now_ns=NOW) == (
        "# time      step   step_ms   data%   comm%   ckpt%      ranks  spread  maxcpu%\n"
        "2026-11-18T11:08:20Z      1000       412       2       2       0        2/4    1.01       51"
    )


def test_a_rate_is_taken_over_half_a_second_or_more(lasting):
    """The agent writes a last line when it ends, however short after the one before."""
    last = sample(
        2 * SECOND + 1_700_000, received=1_200_000, sent=3_400, written=8_000_000, cpu={"busy_fraction": None}
    )
    (load,) = host_loads(("node05",), {"node05": (*TELEMETRY["node05"], last)})
    assert load.disk_bytes_per_second == pytest.approx(8e6 / 1.0017)
    assert load.cpu_fraction == 0.51
    (short,) = host_loads(("node05",), {"node05": (TELEMETRY["node05"][1], last)})
    assert short.disk_bytes_per_second is None and short.memory_used_bytes == 3 * GIB


def test_of_a_run_that_is_over_the_picture_has_mean_and_peak(lasting):
    lines = [
        sample(
            n * SECOND,
            written=written,
            cpu={"busy_fraction": busy},
            memory={"used_bytes": n * GIB, "total_bytes": 8 * GIB},
        )
        for n, (written, busy) in enumerate([(0, None), (9_000_000, 0.9), (9_000_000, 0.5), (9_000_000, 0.1)], 1)
    ]
    loads = run_loads(("node05", "algo-2"), {"node05": lines})
    over = replace(lasting, run=replace(lasting.run, status=Status.COMPLETED))
    text = top_text(over, pace(over.ranks, ended=True), loads, now_ns=NOW, width=80)
    assert [line.split() for line in text.splitlines()[3:7]] == [
        ["HOST", "RUN", "CPU", "MEMORY", "NET", "IN", "NET", "OUT", "DISK"],
        ["node05", "mean", "50%", "2.5", "GiB", "of", "8.0", "GiB", "0", "B/s", "0", "B/s", "3.0", "MB/s"],
        ["node05", "peak", "90%", "4.0", "GiB", "of", "8.0", "GiB", "0", "B/s", "0", "B/s", "9.0", "MB/s"],
        ["algo-2", "mean", "-", "-", "-", "-", "-"],
    ]
    facts = top_facts(over, pace(over.ranks, ended=True), loads, now_ns=NOW).hosts[0]
    assert (facts.cpu_fraction, facts.mean.cpu_fraction, facts.peak.cpu_fraction) == (0.1, 0.5, 0.9)
    assert facts.peak.memory_used_bytes == 4 * GIB


def test_a_program_gets_null_for_what_is_unknown(lasting):
    facts = top_facts(lasting, pace(lasting.ranks), host_loads(lasting.hosts, TELEMETRY), now_ns=NOW)
    assert facts.hosts[1].cpu_fraction is None
    assert facts.hosts[0].network_in_bytes_per_second == 1_200_000.0
    assert facts.wall_seconds == 100.0


def test_gpus_of_a_host_are_added_up():
    gpu = {"busy_fraction": 0.5, "memory_used_bytes": GIB, "memory_total_bytes": 2 * GIB, "power_watts": 100.0}
    load = host_loads(("a",), {"a": (sample(SECOND, gpus=[gpu, {**gpu, "power_watts": None}]),)})[0]
    assert (load.gpu_busy_fraction, load.gpu_memory_used_bytes, load.gpu_power_watts) == (0.5, 2 * GIB, 100.0)
    assert load.network_in_bytes_per_second is None


@pytest.mark.parametrize("line", [{}, {"t_ns": "x"}, {"t_ns": 1, "cpu": 3, "network": {"eth0": 4}, "gpus": [5]}])
def test_a_foreign_telemetry_line_is_unknown_and_no_error(line):
    assert host_loads(("a",), {"a": (line, line)})[0].cpu_fraction is None


def test_the_list_of_runs(lasting):
    run = lasting.run
    gone = replace(run, id="r-51c0de", status=Status.FAILED, reason="agent gone: pid 4711 on node05 no longer exists")
    failed = replace(run, id="r-0aa412", status=Status.FAILED, exit_code=200, reason="host algo-2 is lost")
    done = replace(run, id="r-000001", name="", status=Status.COMPLETED, started_ns=0)
    ranks = {run.id: lasting.ranks, done.id: lasting.ranks}
    listed = [ListedRun(one, run_state(one, ()), ranks.get(one.id, ())) for one in (run, gone, failed, done)]
    assert ps_text(listed, NOW) == (
        "RUN       NAME   STATUS      RANKS   STEP  MS/STEP     AGE  NOTE\n"
        "r-7f3a91  train  InProgress    2/4  1 000      412  1m 40s\n"
        "r-51c0de  train  Failed          -      -        -  1m 40s  agent gone: pid 4711…05 no longer exists\n"
        "r-0aa412  train  Failed          -      -        -  1m 40s  exit 200  host algo-2 is lost\n"
        "r-000001  -      Completed       4  1 000      412       -"
    )
    assert ps_facts(listed).runs[3].started_ns is None


def test_a_list_without_runs_says_how_to_start_one():
    assert ps_text([], NOW) == "no runs: start one with `paceline run train.py`"
