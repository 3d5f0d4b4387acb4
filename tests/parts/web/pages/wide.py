"""The model of a run of many ranks, made up."""

import random

from paceline.recording.step_columns import StepColumns, TimeAxis
from paceline.views.report.facts import COLUMNS
from paceline.views.report.grid import grid_facts


def run_of(ranks, steps, kept_facts):
    """The model of a run of so many ranks: each step differs, so that nothing packs well."""
    chance = random.Random(1)
    axis = TimeAxis(0, steps * 10**9, COLUMNS)
    each = steps // COLUMNS
    hosts = [f"algo-{rank // 8 + 1}" for rank in range(ranks)]
    columns = []
    for rank in range(ranks):
        totals = [round(each * chance.gauss(1, 0.1) * 1e9) for _ in range(COLUMNS)]
        columns.append(
            StepColumns(
                hosts[rank],
                rank,
                0,
                [each] * COLUMNS,
                totals,
                [round(one / each * chance.uniform(1, 2)) for one in totals],
            )
        )
    late = [
        {"rank": rank, "host": hosts[rank], "share": [chance.random() * 0.3 for _ in range(COLUMNS)]}
        for rank in range(ranks)
    ]
    machine = kept_facts["machines"][0]
    machines = [
        {**{name: [chance.random() for _ in range(COLUMNS)] for name in machine if name != "host"}, "host": host}
        for host in dict.fromkeys(hosts)
    ]
    one = kept_facts["now"]["ranks"][0]
    return {
        **kept_facts,
        "axis": {"from_ns": 0, "to_ns": axis.to_ns, "columns": COLUMNS},
        "grid": grid_facts(columns, late, (), axis),
        "lateness": {"rows": late},
        "pace": {name: [chance.random() for _ in range(COLUMNS)] for name in ("mean_seconds", "longest_seconds")},
        "machines": machines,
        "now": {**kept_facts["now"], "ranks": [{**one, "rank": rank, "host": hosts[rank]} for rank in range(ranks)]},
        "logs": [],
    }
