"""A run in Prometheus' text format 0.0.4.

Source:  https://prometheus.io/docs/instrumenting/exposition_formats/, "Text-based format"
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from paceline.diagnosis.case import Case
from paceline.diagnosis.restart_costs import totals
from paceline.diagnosis.verdict import Diagnosis
from paceline.facts import Evidence, Run, Status
from paceline.terminal_text import visible
from paceline.views.host_load import HostUsage
from paceline.views.pace import Pace, RankPace
from paceline.views.summary import summary_facts

Labels = Mapping[str, str]
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_OF_A_HOST = (
    ("cpu_fraction", "CPU time in use", "cpu_fraction"),
    ("memory_used_bytes", "Memory in use", "memory_used_bytes"),
    ("memory_bytes", "All memory", "memory_bytes"),
    ("network_received_bytes_per_second", "Received by all interfaces", "network_in_bytes_per_second"),
    ("network_sent_bytes_per_second", "Sent by all interfaces", "network_out_bytes_per_second"),
    ("disk_bytes_per_second", "Read and written by all disks", "disk_bytes_per_second"),
    ("gpu_busy_fraction", "Mean use of the GPUs", "gpu_busy_fraction"),
    ("gpu_memory_used_bytes", "GPU memory in use", "gpu_memory_used_bytes"),
    ("gpu_power_watts", "Power of the GPUs", "gpu_power_watts"),
)
_OF_A_RANK = (
    ("step_seconds", "Mean duration of a step", "step_seconds"),
    ("loading_fraction", "Share of the steps that waits for data", "loading_fraction"),
    ("exposed_communication_fraction", "Share of the steps in communication that no computation hides", "exposed_communication_fraction"),
    ("checkpoint_fraction", "Share of the steps that saves checkpoints", "checkpoint_fraction"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its samples."""

    name: str
    """Its name."""
    kind: str
    """"counter" or "gauge"."""
    help: str
    """What it is, in one sentence."""
    samples: tuple[tuple[Labels, float], ...] = field(default=())
    """Labels and value of each sample."""


def metrics(
    evidence: Evidence,
    case: Case,
    diagnosis: Diagnosis,
    now: Pace,
    loads: Sequence[HostUsage],
    *,
    now_ns: int,
    ranks: int,
) -> tuple[Metric, ...]:
    """Every metric that is known, each sample with the run's id. `ranks`: so many of the slowest ranks get samples of their own.

    Holds:   counters do not fall while a run lasts, also over its restarts
    """
    made = (*_of_run(evidence, case, diagnosis, now_ns), *_of_pace(now, ranks), *_of_hosts(loads))
    return tuple(_of(evidence.run.id, metric) for metric in made if metric.samples)


def _of(run_id: str, metric: Metric) -> Metric:
    return replace(metric, samples=tuple(({"run": run_id, **labels}, value) for labels, value in metric.samples))


def metrics_text(found: Iterable[Metric]) -> str:
    """The metrics as Prometheus reads them."""
    lines = []
    for metric in found:
        lines += [f"# HELP {metric.name} {_escaped(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            spelled = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{f'{{{spelled}}}' if spelled else ''} {value!r}")
    return "".join(f"{line}\n" for line in lines)


class MetricSample(msgspec.Struct, frozen=True):
    """One value of a metric."""

    labels: Mapping[str, str]
    """Its labels."""
    value: float
    """The value."""


class MetricDocument(msgspec.Struct, frozen=True):
    """One metric, for programs."""

    name: str
    """Name of the metric."""
    type: str
    """`counter` or `gauge`."""
    help: str
    """What it is."""
    samples: tuple[MetricSample, ...]
    """Its values."""


class MetricsDocument(msgspec.Struct, frozen=True, tag_field="schema", tag="paceline.metrics/1"):
    """The metrics of a run, for programs."""

    run_id: str
    """Id of the run."""
    metrics: tuple[MetricDocument, ...]
    """What `paceline report --format prometheus` prints as text."""


def metrics_facts(found: Iterable[Metric], run: Run) -> MetricsDocument:
    """The same for a program."""
    return MetricsDocument(
        run.id,
        tuple(
            MetricDocument(one.name, one.kind, one.help, tuple(MetricSample(*sample) for sample in one.samples))
            for one in found
        ),
    )


def _of_run(evidence: Evidence, case: Case, diagnosis: Diagnosis, now_ns: int) -> Iterator[Metric]:
    run, summary = evidence.run, summary_facts(evidence, now_ns=now_ns)
    info = {"name": run.name, "paceline_version": run.version or ""}
    yield Metric("paceline_run_info", "gauge", "The run, always 1", ((info, 1.0),))
    states = tuple(({"status": str(status)}, float(status is run.status)) for status in Status)
    yield Metric("paceline_run_status", "gauge", "1 for the status of the run, 0 for the others", states)
    yield _one("paceline_steps_total", "counter", "Optimizer steps, of all attempts", summary.step_count)
    for name, text, key in (
        ("loading", "Waiting for data, of a mean rank", "loading_seconds"),
        ("exposed_communication", "Communication that no computation hides, of a mean rank", "exposed_communication_seconds"),
        ("checkpoint", "Saving checkpoints, of a mean rank", "checkpoint_seconds"),
    ):  # fmt: skip
        yield _one(f"paceline_{name}_seconds_total", "counter", text, getattr(summary, key))
    newest = [record.last_step_ns for record in evidence.ranks if record.last_step_ns]
    yield _one(
        "paceline_last_step_timestamp_seconds",
        "gauge",
        "When the newest step ended",
        max(newest) / 1e9 if newest else None,
    )
    yield _one(
        "paceline_restarts_total", "counter", "How often the ranks were started again", totals(evidence.events).count
    )
    stands = (now_ns - case.stall.since_ns) / 1e9 if case.stall is not None and case.lasts else 0.0
    yield _one("paceline_standstill_seconds", "gauge", "For how long no rank has made progress", stands)
    found = tuple(({"code": one.code, "level": str(one.level)}, 1.0) for one in _once(diagnosis))
    yield Metric("paceline_finding", "gauge", "1 for each cause that is found", found)
    if case.forecast is not None and case.forecast.needed_seconds is not None and run.started_ns and case.lasts:
        end = run.started_ns / 1e9 + case.forecast.needed_seconds
        yield _one("paceline_forecast_end_timestamp_seconds", "gauge", "When the job will be done at its pace", end)
    lost = sum(record.dropped_records for record in evidence.ranks)
    yield _one("paceline_lost_records_total", "counter", "Records of steps that did not fit the ring", lost)


def _once(diagnosis: Diagnosis) -> list[Any]:
    """One finding for each code and level."""
    return list({(one.code, one.level): one for one in diagnosis.findings}.values())


def _of_pace(now: Pace, ranks: int) -> Iterator[Metric]:
    yield _one("paceline_step_seconds", "gauge", "Duration of a step, median of the ranks", now.step_seconds)
    text = "Samples of all ranks together, where batches are full and no other loader is read"
    yield _one("paceline_samples_per_second", "gauge", text, now.samples_per_second)
    yield _one("paceline_ranks", "gauge", "Ranks that have arrived", now.ranks_here)
    yield _one("paceline_ranks_wanted", "gauge", "Ranks that the job needs", now.ranks_wanted)
    yield _one(
        "paceline_spread_ratio", "gauge", "The slowest rank's own time of a step over the median rank's", now.spread
    )
    slowest = sorted(now.ranks, key=lambda rank: (-(rank.own_seconds or 0.0), rank.rank))[:ranks]
    for name, text, attribute in _OF_A_RANK:
        samples = tuple((_labels(rank), value) for rank in slowest if (value := getattr(rank, attribute)) is not None)
        yield Metric(f"paceline_rank_{name}", "gauge", text, samples)


def _labels(rank: RankPace) -> dict[str, str]:
    return {"rank": str(rank.rank), "host": rank.host}


def _of_hosts(loads: Sequence[HostUsage]) -> Iterator[Metric]:
    for name, text, attribute in _OF_A_HOST:
        samples = tuple(
            ({"host": load.host}, float(value)) for load in loads if (value := getattr(load, attribute)) is not None
        )
        yield Metric(f"paceline_host_{name}", "gauge", text, samples)


def _one(name: str, kind: str, text: str, value: float | None) -> Metric:
    return Metric(name, kind, text, () if value is None else (({}, float(value)),))


def _escaped(text: str) -> str:
    return re.sub(r'[\\"\n]', lambda found: _ESCAPED[found[0]], visible(text))
