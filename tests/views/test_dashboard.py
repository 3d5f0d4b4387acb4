"""The dashboard for Grafana names only metrics and labels that are there."""

import json
import re

import pytest

from paceline.parts.web.views import metrics


@pytest.fixture(scope="module")
def dashboard(repository):
    return json.loads((repository / "examples" / "grafana.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def documented(repository):
    """Every metric on the page about metrics, which has every metric there is (tests/parts/web/views/test_metrics.py)."""
    found = set()
    for line in (repository / "docs" / "howto" / "metrics.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `paceline_"):
            names = re.findall(r"`(\w+)`", line.split("|")[1])
            found |= {name if name.startswith("paceline_") else f"paceline_host{name}" for name in names}
    return found


def expressions(dashboard):
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_every_metric_of_the_dashboard_is_there(dashboard, documented):
    names = re.findall(r"paceline_\w+", " ".join([*expressions(dashboard), json.dumps(dashboard["templating"])]))
    assert set(names) <= documented and len(set(names)) > 15


def test_every_figure_of_a_host_that_is_a_curve_has_a_panel(dashboard):
    shown = " ".join(expressions(dashboard))
    missing = [name for name, _, _ in metrics._OF_A_HOST if f"paceline_host_{name}" not in shown]
    assert missing == ["gpu_power_watts"]


def test_panels_do_not_lie_over_each_other(dashboard):
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    cells = [
        (x, y)
        for one in places
        for x in range(one["x"], one["x"] + one["w"])
        for y in range(one["y"], one["y"] + one["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_dashboard_asks_for_its_data_source(dashboard):
    assert {target["datasource"]["uid"] for panel in dashboard["panels"] for target in panel["targets"]} == {
        "${datasource}"
    }
