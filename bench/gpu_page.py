"""docs/gpu.md: the results of `make gpu` as a page for readers."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

Found = Mapping[str, Any]
_HEAD = """\
# What was measured on GPUs

On one NVIDIA H200 with torch 2.11. Jobs of several GPUs, NVLink and InfiniBand were never run: see [limits.md](limits.md).
`make gpu` measures all of this on your GPUs, without network, in pieces of at most eight minutes; `python bench/gpu.py --page` writes this
page. The complete results are in `bench/data/gpu`.
"""


def page(results: Sequence[Found]) -> str:
    """The page. `results`: those of `bench/data/gpu`, in the order of the pieces."""
    lines = [_HEAD]
    if not results:
        lines.append("Nothing was measured on a GPU yet.\n")
    for one in results:
        title, told = _SECTIONS[one["piece"]]
        of = one["of"]
        gpus = f"{len(of['gpus'])} x {of['gpus'][0]}"
        lines.append(f"## {title}\n")
        if one["error"]:
            lines.append(f"Failed: {one['error'].strip().splitlines()[-1]}\n")
        elif one["found"]:
            lines.append(told(one["found"]) + "\n")
        lines.append(f"*{gpus}, torch {of['torch']}, {one['at'][:10]}; {one['seconds']:.0f} s; code {of['code']}.*\n")
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int] = ()) -> str:
    """A table in Markdown. `right`: columns of numbers."""
    rule = ["---:" if at in right else "---" for at in range(len(head))]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, rule, *rows))


def _telemetry(found: Found) -> str:
    most = found["most"]
    said = "nothing was found wrong" if not found["findings"] else f"found: {', '.join(found['findings'])}"
    return (
        f"Of a GPU that is kept busy for 12 s the recording has {found['samples']} samples, and {said}. Read were "
        f"{', '.join(f'`{name}`' for name in found['fields'])}.\n\n"
        f"The highest: {most['busy_fraction']:.0%} busy, {most['power_watts']:.0f} W, {most['sm_clock_mhz']} MHz, "
        f"{most['temperature_celsius']} °C, {most['memory_used_bytes'] / 2**30:.1f} of {most['memory_total_bytes'] / 2**30:.1f} GiB."
    )


def _nccl(found: Found) -> str:
    rows = [(ranks, f"{one['all_reduce_64_mib_ms']:.3f}") for ranks, one in sorted(found.items())]
    return "An all_reduce of 64 MiB over NCCL, watched by paceline, the mean of 50:\n\n" + table(
        ("ranks", "ms"), rows, (0, 1)
    )


def _recorders(found: Found) -> str:
    rows = []
    for one in found["answers"]:
        nccl, gloo = (one["answers"][question] for question in ("dump_nccl_trace_json", "fr_trace_json"))
        newest = nccl["entries"][-1]
        rows.append(
            (
                one["situation"],
                "on" if one["timing"] == "1" else "off",
                f"{newest['profiling_name']} {newest['collective_seq_id']}, {newest['state']}",
                len(gloo.get("entries", ())),
                f"{one['seconds']['dump_nccl_trace_json'] * 1e3:.1f}",
                "answers" if "communicators" in one["ras"]["STATUS"]["json"] else "does not answer",
            )
        )
    head = (
        "situation", "torch's timing", "newest collective in NCCL's recorder", "entries in gloo's", "answered in, ms",
        "NCCL's own service",
    )  # fmt: skip
    each = ", ".join(f"{one['without']:.1f} and {one['timed']:.1f}" for one in found["rounds"])
    return (
        "What the flight recorders of one NCCL rank answer while its collective waits:\n\n"
        + table(head, rows, (3, 4))
        + f"\n\nA small all_reduce without torch's timing and with it takes {each} µs: the median of the ratios is "
        f"{found['median_ratio']:.2f}."
    )


def _shared(found: Found) -> str:
    rows = []
    for size in found["gloo"]:
        us = [found[backend][size]["out_of_place"]["median_us"] for backend in ("gloo", "paceline")]
        rows.append((f"{int(size) / 2**20:g}", f"{us[0] / 1e3:.2f}", f"{us[1] / 1e3:.2f}", f"{us[0] / us[1]:.2f}"))
    head = ("MiB", "gloo, ms", "paceline, ms", "gloo / paceline")
    return "An all_reduce of two ranks that share the GPU, the median of 10:\n\n" + table(head, rows, (0, 1, 2, 3))


def _faults(found: Found) -> str:
    said = {
        name: ", ".join(f"[{code}](causes.md)" for code in found[name]) or "nothing"
        for name in ("out_of_memory", "healthy")
    }
    return table(
        ("job", "found"),
        (("runs out of the GPU's memory", said["out_of_memory"]), ("healthy", said["healthy"])),
    )


def _said(found: Found) -> str:
    rows = []
    for one in found["findings"]:
        ranks = ", ".join(map(str, one["ranks"])) or "none"
        rows.append((f"{one['code']} {one['title']}", ranks, one["confidence"], f"{one['detected_after_seconds']:.1f}"))
    text = table(("said", "of rank", "confidence", "after, s"), rows, (3,))
    for one in found["findings"]:
        text += "\n\n```text\n" + "\n".join(one["saw"]) + "\n```"
    return text


def _stuck(found: Found) -> str:
    return (
        f"Rank 1 waits half a minute for a kernel, and rank 0 for rank 1 (gloo, one GPU). The job ended after "
        f"{found['seconds_of_the_job']:.0f} s; meanwhile was said:\n\n" + _said(found)
    )


def _behind(found: Found) -> str:
    return (
        f"The collective of one NCCL rank waits half a minute behind a kernel. The job ended after "
        f"{found['seconds_of_the_job']:.0f} s; meanwhile was said:\n\n" + _said(found)
    )


def _tests(found: Found) -> str:
    text = f"`pytest -m gpu` said: {found['last_line']}"
    failed = [line.split(" ", 1)[1] for line in found["failures"] if line.startswith("FAILED ")]
    return text + "".join(f"\n* failed: `{name}`" for name in failed)


def _resume(found: Found) -> str:
    rows = [
        (
            f"`{one['case']}`",
            one["ranks"],
            one["kills"],
            one["verdict"],
            f"{median(one['seconds_to_the_next_step']):.1f}",
            ", ".join(f"{seconds:.1f}" for seconds in one["seconds_to_the_next_step"]),
        )
        for one in found["runs"]
    ]
    head = ("script", "ranks", "kills", "against torchrun", "to the next step, median s", "each kill, s")
    return (
        "Ranks are killed while they train on the GPU with `--resume auto`. *Equal*: what the script wrote, and its losses, are "
        "those of an undisturbed torchrun to the bit.\n\n" + table(head, rows, (1, 2, 4))
    )


def _overhead(found: Found) -> str:
    names = ("bare", "watched", "resumable")
    rows = [(number, *(f"{one[name]:.2f}" for name in names)) for number, one in enumerate(found["rounds"], 1)]
    ratios = found["median_ratio"]
    return (
        table(("round", "without paceline, ms a step", "watched", "with `--resume auto`"), rows, (0, 1, 2, 3))
        + f"\n\nThe medians of the ratios to the bare step are {ratios['watched']:.4f} and {ratios['resumable']:.4f}."
    )


def _memory(found: Found) -> str:
    rows = []
    for row in found["models"]:
        measured, predicted = row["measured"], row["predicted"]
        low, high = predicted["step_ms_low"], predicted["step_ms_high"]
        rows.append(
            (
                row["model"],
                f"{measured['peak_bytes'] / 2**20:.0f}",
                f"{predicted['allocated_bytes'] / 2**20:.0f}",
                f"{predicted['allocated_bytes'] / measured['peak_bytes'] - 1:+.0%}",
                f"{measured['step_ms']:.2f}",
                f"{predicted['step_ms']:.2f} ({low:.2f}..{high:.2f})",
                "yes" if low <= measured["step_ms"] <= high else "no",
            )
        )
    head = (
        "model",
        "memory, MiB",
        "predicted",
        "off",
        "step, ms",
        "predicted without a measurement",
        "in the interval",
    )
    return (
        "Twelve models, predicted by `paceline plan` from their first step without values, and measured:\n\n"
        + table(head, rows, (1, 2, 3, 4))
    )


_SECTIONS: dict[str, tuple[str, Callable[[Found], str]]] = {
    "telemetry": ("What NVML tells", _telemetry),
    "nccl": ("An exchange over NCCL", _nccl),
    "recorders": ("What the recorders of an NCCL rank answer", _recorders),
    "shared": ("Two ranks on one GPU", _shared),
    "faults": ("Out of memory", _faults),
    "stuck": ("A rank that waits for its GPU", _stuck),
    "behind": ("A collective behind a kernel", _behind),
    "tests": ("The tests that need a GPU", _tests),
    "resume": ("Killed ranks go on", _resume),
    "overhead": ("What watching costs", _overhead),
    "memory": ("Memory and step time, predicted", _memory),
}
