"""Trace every workload of `cases.py` and write `traced.json`. Needs torch; takes about five minutes.

python bench/workloads/make.py [NAME ...]     only these, the others stay as they are
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "src")]

import torch  # noqa: E402

from workloads.cases import CASES, Case  # noqa: E402
from workloads.fake_step import peak_of, trace  # noqa: E402

DEVICES = (1, 2, 3, 4, 8, 16)


def entry(case: Case, half: bool) -> dict[str, Any]:
    """Traced at its batch and at twice that: the difference is the memory of samples, the rest does not grow with them."""
    one = trace(case.build, case.step, case.batch, half=half)
    two = trace(case.build, case.step, 2 * case.batch, half=half)
    growing = two["peak_bytes"] - one["peak_bytes"]
    state = one["parameter_bytes"] * case.states
    kinds: dict[tuple[str, bool], list[float]] = {}
    for each in one["operations"]:
        row = kinds.setdefault((each["kind"], each["half"]), [0, 0.0, 0.0])
        row[0] += each["count"]
        row[1] += each["flops"]
        row[2] += each["moved_bytes"]
    # The update, as one fused kernel: reads parameter, gradient and state, writes parameter and state.
    update = (3 + 2 * case.states) * one["parameter_bytes"]
    kinds.setdefault(("elementwise", False), [0, 0.0, 0.0])[2] += update
    return {
        "name": case.name,
        "family": case.family,
        "half": half,
        "workload": {
            "name": case.name,
            "parameter_count": one["parameter_count"],
            "parameter_bytes": one["parameter_bytes"],
            "gradient_bytes": one["gradient_bytes"],
            "gradient_tensors": one["gradient_tensors"],
            "optimizer_bytes": state,
            "activation_bytes": growing,
            "peak_fixed_bytes": max(0, one["peak_bytes"] - growing - one["parameter_bytes"] - one["gradient_bytes"]),
            "largest_tensor_bytes": one["largest_tensor_bytes"],
            "transient_bytes": _update(case, one["largest_parameter"]),
            "batch": case.batch,
            "flops": sum(row[1] for row in kinds.values()),
        },
        "operations": [
            {"name": kind, "kind": kind, "half": is_half, "count": int(row[0]), "flops": row[1], "moved_bytes": row[2]}
            for (kind, is_half), row in sorted(kinds.items())
        ],
        "prepared": {} if case.prepare is None else {str(count): list(_prepared(case, count)) for count in DEVICES},
    }


def _prepared(case: Case, count: int) -> tuple[int, int]:
    prepare = case.prepare
    assert prepare is not None
    return peak_of(lambda: prepare(count))


def _update(case: Case, values: int) -> int | None:
    """What the update makes beside a parameter, its gradient and the two values of its state, all of fp32."""
    update = case.update
    return None if update is None else peak_of(lambda: update(values))[0] - 4 * 4 * values


def main(names: list[str]) -> None:
    path = HERE / "traced.json"
    kept = [] if not names or not path.exists() else json.loads(path.read_text(encoding="utf-8"))["workloads"]
    made = [each for each in kept if each["name"] not in names]
    for case in CASES:
        if names and case.name not in names:
            continue
        made += [entry(case, half) for half in (False, True)]
        sys.stderr.write(f"{case.name}\n")
    known = {case.name for case in CASES}
    made = [each for each in made if each["name"] in known]
    made.sort(key=lambda each: (each["name"], each["half"]))
    lines = ",\n".join(json.dumps(each) for each in made)
    path.write_text(f'{{"torch": "{torch.__version__}", "workloads": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
