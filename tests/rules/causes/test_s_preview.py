"""The causes of slow jobs that were judged on made-up evidence only."""

import pytest

from paceline.diagnosis.snapshots import Socket
from paceline.facts import RankRecord, Step
from paceline.rules import discover

PREVIEW = ("S06", "S09", "S10", "S12", "S14", "S15", "S16", "S17", "S18")


@pytest.fixture
def slow(case):
    return lambda timing, **fields: case(still=False, timing=timing, world_size=len(timing.ranks), **fields)


@pytest.fixture
def exchanging(timing, rank_timing):
    return lambda **fields: timing(*(rank_timing(rank, communication_seconds=0.03) for rank in range(4)), **fields)


def socket(**fields):
    known = {"local": "a:1", "remote": "b:2", "state": "established", "receive_queue_bytes": 0, "send_queue_bytes": 0}
    return Socket(**{**known, "peer_host": "algo-1", **fields})


def test_they_are_marked():
    marked = {cause.code for cause in discover("causes") if cause.preview and cause.code.startswith("S")}
    assert marked == set(PREVIEW)


def test_a_throttled_gpu(found, slow, timing, rank_timing):
    def gpus(clock, reasons=0):
        return {"gpus": ({"index": 0, "sm_clock_mhz": clock, "throttle_reasons": reasons},)}

    ranks = (rank_timing(0, host="algo-1"), rank_timing(1, 30.0, host="algo-2"), rank_timing(2, host="algo-3"))
    hot = timing(*ranks, hosts={"algo-1": gpus(1980), "algo-2": gpus(1200, 0x40), "algo-3": gpus(1980)})
    (finding,) = found("s06", slow(hot))
    assert (finding.ranks, finding.hosts) == ((1,), ("algo-2",))
    assert "heat (hardware)" in finding.saw[0]
    cool = timing(*ranks, hosts={f"algo-{n}": gpus(1980) for n in (1, 2, 3)})
    assert found("s06", slow(cool)) == []


def test_lost_packets(found, missing, slow, snapshot, exchanging):
    lossy = socket(retransmits=120, sent_bytes=20_000_000, rtt_ms=0.3, min_rtt_ms=0.2, congestion_window=11)
    (finding,) = found("s09", slow(exchanging(), snapshots=[snapshot(2, sockets=(lossy,))]))
    assert finding.hosts == ("algo-2",)
    assert "0.87% of what was sent" in finding.saw[0]
    assert found("s09", slow(exchanging(), snapshots=[snapshot(2, sockets=(socket(),))])) == []
    assert "TCP" in missing("s09", slow(exchanging()))


@pytest.mark.parametrize(
    "segments, again, more",
    [
        # A link that was merely full: nothing lost, three sent again.
        (2_000, 3, {"rtt_ms": 14.0, "min_rtt_ms": 0.2, "congestion_window": 60}),
        # The beginning of a connection on a busy machine.
        (400, 4, {"rtt_ms": 0.3, "min_rtt_ms": 0.2, "backoff": 2}),
        # A small queue before a link: a window of 16 segments drops one in 170.
        (40_000, 200, {"rtt_ms": 14.0, "min_rtt_ms": 0.2, "congestion_window": 16}),
        # One in a thousand is what chance makes of one in two thousand.
        (15_000, 15, {"rtt_ms": 0.3, "min_rtt_ms": 0.2, "congestion_window": 90}),
    ],
)
def test_what_chance_and_a_full_queue_lose_is_no_packet_loss(segments, again, more, found, slow, snapshot, exchanging):
    few = socket(retransmits=again, sent_bytes=segments * 1448, **more)
    assert found("s09", slow(exchanging(), snapshots=[snapshot(2, sockets=(few,))])) == []


def test_large_packets_that_vanish(found, case, snapshot):
    stuck = socket(backoff=4, unacked=9, send_queue_bytes=300_000, sent_bytes=2000)
    alive = socket(last_received_ms=800)
    assert len(found("s10", case(snapshots=[snapshot(2, sockets=(stuck, alive))]))) == 1
    assert found("s10", case(snapshots=[snapshot(2, sockets=(stuck,))])) == []
    assert found("s10", case(still=False)) == []


def test_a_wrong_path(found, missing, slow, snapshot, exchanging):
    bridge = snapshot(0, environment={"GLOO_SOCKET_IFNAME": "docker0"})
    assert "virtual interface" in found("s12", slow(exchanging(), snapshots=[bridge]))[0].saw[0]
    assert found("s12", slow(exchanging(), snapshots=[snapshot(0, environment={"GLOO_SOCKET_IFNAME": "eth0"})])) == []
    assert "environment" in missing("s12", slow(exchanging()))


def test_ranks_that_take_turns(found, slow, timing, rank_timing):
    turns = tuple(
        rank_timing(rank, lags=(0.0, 0.001, 0.001), late_seconds=0.008, last_fraction=0.25) for rank in range(4)
    )
    (finding,) = found("s14", slow(timing(*turns, spread_seconds=0.02)))
    assert "late in 100% of the steps" in finding.saw[0]
    assert found("s14", slow(timing(rank_timing(0), rank_timing(1, 30.0)))) == []


def test_pauses_of_one_rank_and_another(found, missing, slow, timing, rank_timing):
    def record(rank, pauses, pause_ms=500):
        """`pauses`: the steps with a pause; or step -> its pause, in ms."""
        long = pauses if isinstance(pauses, dict) else dict.fromkeys(pauses, pause_ms)
        steps = tuple(
            Step(
                index=n,
                end_ns=0,
                duration_ns=(20 + long.get(n, 0)) * 1_000_000,
                data_ns=0,
                communication_ns=0,
                checkpoint_ns=0,
            )
            for n in range(200)
        )
        return RankRecord(host="algo-1", rank=rank, attempt=0, steps=steps)

    even = timing(rank_timing(0), rank_timing(1))
    paused = {0: record(0, {30, 70, 99, 180}), 1: record(1, {60, 90, 120, 150})}
    assert "8 single steps paused, on 2 ranks" in found("s15", slow(even, ranks=paused))[0].saw[0]
    crowded = timing(rank_timing(0), rank_timing(1), hosts={"algo-1": {"pressure_cpu": 0.9}})
    assert "wait for a CPU" in missing("s15", slow(crowded, ranks=paused))
    # Their cost in the long run may as well be half of what it is here.
    seldom = {0: record(0, {30}), 1: record(1, {60, 150})}
    assert found("s15", slow(even, ranks=seldom)) == []
    together = {rank: record(rank, {30, 60, 99, 150}) for rank in (0, 1)}
    assert found("s15", slow(even, ranks=together)) == []
    # All evaluate in two steps, and something short happens beside.
    evaluation = {0: record(0, {30: 20_000, 110: 20_000, 60: 100}), 1: record(1, {30: 20_000, 110: 20_000, 150: 100})}
    assert found("s15", slow(even, ranks=evaluation)) == []
    # One rank saves or evaluates for long, once.
    save = {0: record(0, {30: 20_000, 70: 300}), 1: record(1, {60: 300, 150: 300, 170: 200})}
    assert found("s15", slow(even, ranks=save)) == []
    assert "single steps" in missing("s15", slow(even))


def test_steps_that_do_too_little(found, missing, slow, timing, rank_timing):
    def small(**fields):
        return timing(
            *(rank_timing(rank, step_ms=10.0, communication_seconds=0.006) for rank in range(2)), step_ms=10.0, **fields
        )

    (finding,) = found("s16", slow(small(step_bytes=40_000.0, collectives_per_step=20.0)))
    assert "20 collectives a step of 2.0 KB each take 6 ms" in finding.saw[0]
    assert found("s16", slow(small(step_bytes=4e7, collectives_per_step=3.0))) == []
    assert "sizes" in missing("s16", slow(small(step_bytes=None)))


def test_memory_pressure(found, slow, timing, rank_timing):
    short = timing(rank_timing(0), rank_timing(1), hosts={"algo-1": {"pressure_memory": 0.4, "swap_used_bytes": 2**31}})
    assert "2.0 GiB are swapped out" in found("s17", slow(short))[0].saw[0]
    assert found("s17", slow(timing(rank_timing(0), rank_timing(1)))) == []


def test_slow_storage(found, slow, timing, rank_timing):
    waiting = (rank_timing(0, data_seconds=0.03), rank_timing(1, data_seconds=0.03))
    assert (
        "waited for IO in 60%" in found("s18", slow(timing(*waiting, hosts={"algo-1": {"pressure_io": 0.6}})))[0].saw[0]
    )
    assert found("s18", slow(timing(*waiting))) == []
