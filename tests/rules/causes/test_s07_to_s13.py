"""Slow exchanges: bandwidth, latency, a hot spot; and work that only one rank does."""

import pytest

from paceline.diagnosis.snapshots import HostSnapshot, Socket
from paceline.diagnosis.verdict import diagnose
from paceline.findings import Confidence
from paceline.rules import discover


@pytest.fixture
def slow(case):
    return lambda timing, **fields: case(still=False, timing=timing, world_size=len(timing.ranks), **fields)


def socket(peer="algo-1", **fields):
    known = {
        "local": "10.77.0.2:4000",
        "remote": "10.77.0.1:5000",
        "state": "established",
        "receive_queue_bytes": 0,
        "send_queue_bytes": 0,
        "rtt_ms": 0.05,
        "min_rtt_ms": 0.02,
        "delivery_rate": 1e9,
        "not_sent_bytes": 0,
    }
    return Socket(**{**known, "peer_host": peer, **fields})


# Egress of one host at 200 Mbit/s by tc tbf, as measured: 1.53 MB in the queue, 1.17 MB of it not sent.
FULL = {
    "send_queue_bytes": 1_530_000,
    "not_sent_bytes": 1_170_000,
    "delivery_rate": 191e6 / 8,
    "rtt_ms": 14.0,
    "min_rtt_ms": 0.008,
}
FAR = {"rtt_ms": 21.0, "min_rtt_ms": 20.2}


@pytest.fixture
def exchanging(timing, rank_timing):
    """Two hosts of two ranks whose exchange takes 180 of 200 ms."""

    def made(**fields):
        ranks = (rank_timing(rank, step_ms=200.0, communication_seconds=0.18) for rank in range(4))
        sent = {"sent_bytes_per_second": 0.9 * 191e6 / 8}
        known = {"step_bytes": 4.3e6, "hosts": {"algo-1": sent, "algo-2": sent}}
        return timing(*ranks, step_ms=200.0, **{**known, **fields})

    return made


def test_of_several_links_the_host_that_they_share_is_named(found, slow, snapshot, timing, rank_timing):
    ranks = (rank_timing(n, step_ms=200.0, host=f"algo-{n + 1}", communication_seconds=0.18) for n in range(3))
    snapshots = [
        snapshot(0, host="algo-1", sockets=(socket("algo-2", **FULL), socket("algo-3"))),
        snapshot(2, host="algo-3", sockets=(socket("algo-2", **FULL), socket("algo-1"))),
    ]
    (finding,) = found("s07", slow(timing(*ranks, step_ms=200.0), snapshots=snapshots))
    assert (finding.ranks, finding.hosts) == ((1,), ("algo-2",))


def test_the_other_end_names_a_host_whose_address_is_unknown(found, slow, snapshot, exchanging):
    here = socket(None, local="10.77.0.2:4000", remote="10.77.0.1:5000", **FULL)
    there = socket(None, local="10.77.0.1:5000", remote="10.77.0.2:4000")
    snapshots = [snapshot(0, sockets=(there,)), snapshot(2, sockets=(here,))]
    assert found("s07", slow(exchanging(), snapshots=snapshots))[0].hosts == ("algo-1", "algo-2")


def test_a_slow_link(found, slow, snapshot, exchanging):
    snapshots = [snapshot(0, sockets=(socket("algo-2"),)), snapshot(2, sockets=(socket(**FULL),))]
    (finding,) = found("s07", slow(exchanging(), snapshots=snapshots))
    assert (finding.ranks, finding.hosts) == ((0, 1, 2, 3), ("algo-1", "algo-2"))
    assert finding.confidence is Confidence.HIGH
    assert "carries 191 Mbit/s" in finding.saw[0]
    assert "takes 180 ms at that rate" in finding.saw[1]
    assert found("s08", slow(exchanging(), snapshots=snapshots)) == []


def test_what_a_full_queue_drops_is_no_packet_loss(found, slow, snapshot, exchanging):
    sent_bytes = 1_524_768_929
    dropping = socket(**FULL, sent_bytes=sent_bytes, retransmits=29, lost=4)
    snapshots = [snapshot(2, sockets=(dropping,))]
    assert len(found("s07", slow(exchanging(), snapshots=snapshots))) == 1
    assert found("s09", slow(exchanging(), snapshots=snapshots)) == []
    losing = [snapshot(2, sockets=(socket(**FULL, sent_bytes=sent_bytes, retransmits=1300),))]
    assert found("s07", slow(exchanging(), snapshots=losing)) == []
    assert len(found("s09", slow(exchanging(), snapshots=losing))) == 1


def test_a_long_way(found, slow, snapshot, exchanging):
    snapshots = [snapshot(0, sockets=(socket("algo-2", **FAR),)), snapshot(2, sockets=(socket(**FAR),))]
    (finding,) = found("s08", slow(exchanging(), snapshots=snapshots))
    assert finding.hosts == ("algo-1", "algo-2")
    assert "round trip takes 20.2 ms at least, 3 collectives a step" in finding.saw[0]
    assert "costs 180 ms of each step of 200 ms" in finding.saw[1]
    assert found("s07", slow(exchanging(), snapshots=snapshots)) == []


def test_a_long_way_whose_window_is_full_is_still_a_long_way(found, slow, snapshot, exchanging):
    snapshots = [snapshot(2, sockets=(socket(**FAR, send_queue_bytes=10**6, not_sent_bytes=10**6),))]
    assert found("s07", slow(exchanging(), snapshots=snapshots)) == []
    assert len(found("s08", slow(exchanging(), snapshots=snapshots))) == 1


@pytest.mark.parametrize("code", ["s07", "s08"])
def test_links_are_not_judged_unseen_and_not_where_the_exchange_is_short(
    code, found, missing, slow, snapshot, timing, rank_timing, exchanging
):
    assert "TCP connections" in missing(code, slow(exchanging()))
    quick = timing(*(rank_timing(rank, communication_seconds=0.002) for rank in range(4)))
    snapshots = [snapshot(2, sockets=(socket(**FULL), socket(**FAR)))]
    assert found(code, slow(quick, snapshots=snapshots)) == []
    within = [snapshot(2, sockets=(socket("algo-2", **FULL), socket(None, **FAR)))]
    assert found(code, slow(exchanging(), snapshots=within)) == []


@pytest.fixture
def star(timing, rank_timing):
    """Three hosts; the first carries as much as the other two together."""

    def made(**first):
        ranks = tuple(
            rank_timing(rank, step_ms=100.0, host=f"algo-{rank + 1}", communication_seconds=0.06) for rank in range(3)
        )
        others = {"sent_bytes_per_second": 1e7, "received_bytes_per_second": 1e7}
        hub = {"sent_bytes_per_second": 2e7, "received_bytes_per_second": 2e7, **first}
        return timing(*ranks, step_ms=100.0, hosts={"algo-1": hub, "algo-2": others, "algo-3": others})

    return made


def test_a_hot_spot(found, slow, star):
    (finding,) = found("s11", slow(star()))
    assert (finding.ranks, finding.hosts) == ((0,), ("algo-1",))
    assert "sends and receives 40.0 MB/s, the other 2 hosts together 40.0 MB/s: a star" in finding.saw[0]


def test_a_ring_is_no_hot_spot_and_unknown_bytes_are_not_judged(found, missing, slow, star, exchanging):
    ring = star(sent_bytes_per_second=1e7, received_bytes_per_second=1e7)
    assert found("s11", slow(ring)) == []
    assert "bytes" in missing("s11", slow(star(sent_bytes_per_second=None)))
    assert found("s11", slow(exchanging())) == []


def test_work_in_every_tenth_step(found, slow, timing, rank_timing):
    # Rank 0 sleeps 200 ms in every 10th step of 20 ms.
    rare = {"lags": (0.0, 0.0, 0.0), "late_seconds": 0.02, "last_fraction": 0.1, "periodic": 10, "slow_since_step": 29}
    (finding,) = found(
        "s13", slow(timing(rank_timing(0, step_ms=40.0, **rare), rank_timing(1, step_ms=40.0), step_ms=40.0))
    )
    assert (finding.ranks, finding.since_step) == ((0,), 29)
    assert "late once in 10 steps, by 200 ms" in finding.saw[0]
    assert "costs 20 ms of each step of 40 ms (50%)" in finding.saw[1]


def test_one_rank_alone_that_saves(found, slow, timing, rank_timing):
    saving = timing(rank_timing(0, checkpoint_seconds=0.02), rank_timing(1))
    (finding,) = found("s13", slow(saving))
    assert "alone saves checkpoints" in finding.saw[0]
    assert "async_save" in finding.next[0]
    both = timing(rank_timing(0, checkpoint_seconds=0.02), rank_timing(1, checkpoint_seconds=0.02))
    assert found("s13", slow(both)) == []


def test_a_straggler_of_every_step_is_no_extra_work(found, missing, slow, timing, rank_timing):
    assert found("s13", slow(timing(rank_timing(0), rank_timing(1, 30.0)))) == []
    blind = rank_timing(1, lags=None, late_seconds=None, last_fraction=None)
    assert "flight recorders" in missing("s13", slow(timing(rank_timing(0), blind)))


def test_work_in_every_tenth_step_is_told_beside_a_busy_neighbour(slow, timing, rank_timing):
    # No neighbour keeps to every tenth step of one rank.
    rare = {"lags": (0.0, 0.0, 0.0), "late_seconds": 0.02, "last_fraction": 0.1, "periodic": 10}
    busy = {"algo-1": {"cpu_count": 2, "busy_fraction": 1.0, "pressure_cpu": 0.9, "ranks_cpu": 0.4}}
    even = timing(rank_timing(0, step_ms=40.0, **rare), rank_timing(1, step_ms=40.0), step_ms=40.0, hosts=busy)
    seen = HostSnapshot(host="algo-1", at_ns=0, cpu_count=2, pressure_cpu=0.9, foreign=((77, "stress", 1.5),))
    causes = [cause for cause in discover("causes") if cause.code.startswith("S")]
    assert [finding.code for finding in diagnose(slow(even, host_snapshots=[seen]), causes).findings] == ["S13"]
