"""The published tensorboard package reads what `paceline report --format tensorboard` writes."""

import pytest
from kept import kept

from paceline.cli import main

pytestmark = pytest.mark.browser


def test_tensorboard_reads_the_figures_of_the_run_and_of_its_machine(tmp_path):
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard: make web-ci installs it"
    )
    assert (
        main(["report", str(kept("straggler", tmp_path)[0]), "--format", "tensorboard", "-o", str(tmp_path / "logs")])
        == 0
    )
    (run,) = (tmp_path / "logs").iterdir()
    found = {}
    for place in run.iterdir():
        events = reader.EventAccumulator(str(place))
        events.Reload()
        assert events.FirstEventTimestamp() > 0
        found[place.name] = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    steps = found["run"]["run/step_seconds"]
    assert 0 < min(one.value for one in steps) <= max(one.value for one in found["run"]["run/longest_step_seconds"])
    assert [one.step for one in steps] == sorted(one.step for one in steps)
    (host,) = set(found) - {"run"}
    assert all(0 <= one.value <= 1 for one in found[host]["host/cpu_fraction"])
    assert min(one.value for one in found[host]["host/memory_used_bytes"]) > 1 << 20
