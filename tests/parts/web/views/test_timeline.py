"""A run on tracks: the formats are read back, spans nest, and a collective is connected across ranks."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cli import main
from paceline.parts.web.views.timeline import chrome, perfetto, timeline
from paceline.recording.rank_spans import RankSpans, Span

ASLEEP = str(Path(__file__).parents[3] / "recording/data/before/asleep")
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def fields_of(content):
    """Number and value of each field of a message of protobuf, as the format's description has it."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(content):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 1:
            value, at = content[at : at + 8], at + 8
        else:
            assert key & 7 == 2
            size = varint()
            value, at = content[at : at + size], at + size
        found.append((key >> 3, value))
    assert at == len(content)
    return found


def packets(trace):
    """Tracks (number -> name), and the events as (kind, track, time, name, link)."""
    tracks, events = {}, []
    for number, packet in fields_of(trace):
        assert number == 1
        parts = dict(fields_of(packet))
        if 60 in parts:
            described = dict(fields_of(parts[60]))
            tracks[described[1]] = described[2].decode()
        else:
            event = dict(fields_of(parts[11]))
            link = struct.unpack("<Q", event[47])[0] if 47 in event else None
            events.append((event[9], event[11], parts[8], event.get(23, b"").decode(), link))
    return tracks, events


def drawn(ranks, events=(), telemetry=None):
    return timeline(ranks, events, telemetry or {}, from_ns=0, to_ns=1 << 62)


def rank(number, *spans):
    return RankSpans(host="a", rank=number, attempt=0, pid=7, spans=spans)


SPANS = st.lists(
    st.builds(
        lambda kind, begin, length: Span(kind, "x", begin, begin + length, {"bytes": 1, "waited_ms": 0.5}),
        st.sampled_from(["step", "phase", "collective"]),
        st.integers(0, 1000),
        st.integers(0, 300),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(spans=SPANS)
def test_on_each_track_what_begins_ends_before_the_next_begins(spans):
    made = drawn([rank(0, *spans)])
    tracks, events = packets(perfetto(made))
    assert [event[2] for event in events] == sorted(event[2] for event in events)
    begun = dict.fromkeys(tracks, 0)
    for kind, track, *_ in events:
        begun[track] += {BEGIN: 1, END: -1}.get(kind, 0)
        assert 0 <= begun[track] <= 1
    assert not any(begun.values()) and sum(kind == BEGIN for kind, *_ in events) == len(spans)


def test_a_collective_is_connected_across_ranks():
    made = drawn([rank(number, Span("collective", "allreduce", 5, 9, {"number": 37}, link=37)) for number in range(3)])
    _, events = packets(perfetto(made))
    assert [(track, link) for kind, track, _, _, link in events if kind == BEGIN] == [
        (1003, 37),
        (1013, 37),
        (1023, 37),
    ]


def test_the_job_tells_and_a_host_has_its_curves():
    told = {"event": "notice", "t_ns": 3, "text": "told"}
    sample = {"t_ns": 4, "cpu": {"busy_fraction": 0.25}, "memory": {"used_bytes": 3 << 20}}
    tracks, events = packets(perfetto(drawn([], [told, {"event": "notice", "text": 7}], {"algo-1": [sample]})))
    assert "algo-1" in tracks.values() and "job" in tracks.values()
    assert (INSTANT, 1, 3, "told", None) in events and sum(kind == COUNTER for kind, *_ in events) == 2


def still(t_ns, since_ns, *late):
    return {"event": "standstill", "t_ns": t_ns, "standstill": {"since_ns": since_ns, "late": list(late)}}


def test_a_hang_lasts_from_its_begin_to_what_ends_it():
    events = [
        still(12, 10, 1),
        still(14, 10, 1),
        {"event": "standstill_over", "t_ns": 15},
        still(22, 20),
        still(32, 30, 0, 2),
        {"event": "restart", "t_ns": 40},
        {"event": "standstill", "t_ns": 41, "standstill": "torn"},
        still(92, 90, 3),
    ]
    tracks, marks = packets(perfetto(timeline([], events, {}, from_ns=11, to_ns=95)))
    assert tracks[2] == "hangs"
    spans = [(kind, t_ns, name) for kind, track, t_ns, name, _ in marks if track == 2]
    assert spans == [
        (BEGIN, 11, "hang: the others wait for rank 1"), (END, 15, ""),
        (BEGIN, 20, "hang"), (END, 30, ""),
        (BEGIN, 30, "hang: the others wait for ranks 0,2"), (END, 40, ""),
        (BEGIN, 90, "hang: the others wait for rank 3"), (END, 95, ""),
    ]  # fmt: skip


def test_both_formats_have_the_same_of_a_recording(tmp_path, capsys):
    assert main(["report", "--format", "trace", ASLEEP, "-o", str(tmp_path / "run.pftrace")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'run.pftrace'}\n"
    tracks, events = packets((tmp_path / "run.pftrace").read_bytes())
    assert main(["report", "--format", "trace", ASLEEP, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["traceEvents"]
    count = {kind: sum(event["ph"] == kind for event in shown) for kind in "BEiCM"}
    assert [count[kind] for kind in "BEiC"] == [
        sum(one[0] == kind for one in events) for kind in (BEGIN, END, INSTANT, COUNTER)
    ]
    assert count["M"] == len(tracks) and "rank 1 on localhost, attempt 0" in tracks.values()
    assert {name for kind, _, _, name, _ in events if kind == BEGIN} >= {"step 1", "step 12"}
    assert any("rank 1" in name for kind, track, _, name, _ in events if track == 1 and kind == INSTANT)


def test_a_window_and_ranks_are_chosen(capsys):
    assert main(["report", "--format", "trace", ASLEEP, "--json", "--rank", "1", "--to", "1s"]) == 0
    shown = json.loads(capsys.readouterr().out)["traceEvents"]
    assert not [event for event in shown if event["ph"] == "B" and event["name"].startswith("step")]
    assert not [event for event in shown if "rank 0" in str(event.get("args", ""))]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("r-zzzzzz",), "U09"),
        ((ASLEEP, "--from", "5m", "--to", "1m"), "U03"),
        ((ASLEEP, "--rank", "x"), "U03"),
        ((ASLEEP, "-o", "/nowhere/run.pftrace"), "U22"),
    ],
)
def test_what_cannot_be_is_refused(words, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--format", "trace", *words]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


def test_the_published_classes_read_every_field(capsysbinary):
    trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    from google.protobuf.unknown_fields import UnknownFieldSet

    assert main(["report", "--format", "trace", ASLEEP, "-o", "-"]) == 0
    trace = trace_pb2.Trace()
    trace.ParseFromString(capsysbinary.readouterr().out)
    for packet in trace.packet:
        assert not any(len(UnknownFieldSet(one)) for one in (packet, packet.track_event, packet.track_descriptor))


def test_hostile_names_become_text():
    made = drawn([rank(0, Span("step", 'a"\x00\ud800</script>', 1, 2, {}))])
    _, events = packets(perfetto(made))
    assert events[0][3] == 'a"\u2400\\ud800</script>' == json.loads(chrome(made))["traceEvents"][-2]["name"]
