"""`auto` where latency rules: four hosts 10 ms apart. Needs root. Wide, because it compares times."""

import json
import os
import subprocess
import sys

import pytest
from patience import patient

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.wide, pytest.mark.timeout(240)]

WORDS = ("--hosts", "4", "--delay-ms", "10", "--models", "small", "--rounds", "8", "--json")


def test_between_hosts_that_are_far_apart_direct_is_chosen_and_faster(repository, user_environment):
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    found = measured(repository, user_environment)
    if found["strategy"] == "plain" or found["ratio"] > 0.8:
        # Other work on this machine holds up the switch, whose delay is made on a core: both ways are then as slow.
        found = measured(repository, user_environment)
    assert found["strategy"].startswith("direct") and found["ratio"] < 0.8, found
    assert found["said"][0].startswith("--gradients auto: 4 hosts, ")
    assert any("trying direct" in text for text in found["said"])
    assert "expected" in found["said"][-1] and "plain DDP" in found["said"][-1]


def measured(repository, environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(repository / "bench" / "tuner.py"), *WORDS],
        env=environment, capture_output=True, text=True, check=False, timeout=patient(110),
    )  # fmt: skip
    assert done.stdout, done.stderr
    (found,) = json.loads(done.stdout)["results"]
    return found
