"""The step to plan: traced from the script, read from a saved trace, or described by hand."""

import argparse
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from paceline.cli.progress import ProgressLine
from paceline.cli.values import above_zero, counted, duration, scaled_count
from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.launch.program import near_script
from paceline.parts.plan.cli.options import words_of_ours
from paceline.parts.plan.planner.collective import MIB
from paceline.parts.plan.planner.what_if import with_batch, with_buckets, with_microbatches, with_precision
from paceline.parts.plan.planner.workload import Assumption, Precision, Strategy, Workload

TRACE_TIMEOUT_SECONDS = 600.0
FP32_BYTES = 4


def workload_of(args: argparse.Namespace, device_count: int) -> Workload:
    """The traced or given step, with the changes of the options. `device_count`: devices that a traced script finds.

    Raises:  UsageError P03, P05, P06, U02, U03, U27: unusable options, script or saved trace
    """
    base = _base(args, device_count)
    return _changed(_given(base, args), args)


def _base(args: argparse.Namespace, device_count: int) -> Workload:
    if args.script and args.trace:
        raise UsageError(
            "U03",
            "--trace is a saved trace, and a script is given beside it",
            saw=f"--trace {args.trace} {args.script}",
            next="leave --trace out",
        )
    if args.trace:
        return _saved(args.trace)
    if not args.script and not args.model:
        return Workload()
    workload = _traced(args, device_count)
    workload = replace(workload, name=args.model or Path(args.script).name)
    if args.save_trace:
        _save(workload, args.save_trace)
    return workload


def _save(workload: Workload, path: str) -> None:
    from paceline.parts.plan.planner.trace_json import to_plain

    try:
        Path(path).write_text(json.dumps(to_plain(workload)) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "U03", f"--save-trace {path} cannot be written", saw=str(error.strerror), next=f"ls -ld {Path(path).parent}"
        ) from None


def _saved(path: str) -> Workload:
    from paceline.parts.plan.planner.trace_json import from_plain

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError("U03", f"--trace {path} cannot be read", saw=str(reason), next=f"ls -l {path}") from None
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise UsageError(
            "U03",
            f"--trace {path} is not a saved trace",
            saw=str(error),
            next=f"paceline plan --save-trace {path} train.py",
        ) from None
    return from_plain(plain)


def _traced(args: argparse.Namespace, device_count: int) -> Workload:
    timeout = duration("--trace-timeout", args.trace_timeout) if args.trace_timeout else TRACE_TIMEOUT_SECONDS
    program = _program(args)
    from paceline.parts.plan.trace_script import trace

    device = "cpu" if getattr(args, "for") == "ddp-cpu" else "cuda"
    try:
        with ProgressLine(f"running {args.model or args.script} up to its first optimizer step", shown=not args.json):
            return trace(
                program,
                python=sys.executable,
                model=args.model or "",
                device=device,
                device_count=device_count,
                timeout_seconds=timeout,
            )
    except UsageError as failed:
        ours, others = words_of_ours(args.script_args)
        # If the script mentions none of them, they are not the cause of the error.
        if not any(word.partition("=")[0] in failed.saw for word in ours if word.startswith("--")):
            raise
        raise UsageError(
            failed.code, failed.what, saw=failed.saw, next=f"{_before_the_script(args, ours, others)}; or {failed.next}"
        ) from None


def _before_the_script(args: argparse.Namespace, ours: list[str], others: list[str]) -> str:
    """The command with `ours` moved before the script."""
    names = [word.partition("=")[0] for word in ours if word.startswith("--")]
    command = shlex.join(["paceline", "plan", *args.own_argv, *ours, args.script, *others])
    return f"options of paceline plan come before the script; if it was to take {', '.join(names)}: {command}"


def _program(args: argparse.Namespace) -> Program | None:
    if args.script is None:
        return None
    if args.module:
        return Program(kind=ProgramKind.MODULE, target=args.script, arguments=args.script_args)
    script = Program(kind=ProgramKind.SCRIPT, target=args.script, arguments=args.script_args)
    path = Path(args.script)
    if not path.is_file():
        raise UsageError(
            "U02", f"there is no script {path}", saw=f"looked in {Path.cwd()}", next=near_script(script, path)
        )
    return script


def _given(workload: Workload, args: argparse.Namespace) -> Workload:
    """Numbers of the options replace those of a trace."""
    assumptions = list(workload.assumptions)
    batch = counted("--batch", args.batch) if args.batch else None
    if workload.batch is None and batch is not None:
        workload = replace(workload, batch=batch)
    if args.parameters:
        count = scaled_count("--parameters", args.parameters)
        workload = replace(
            workload, parameter_count=count, parameter_bytes=None, gradient_bytes=count * FP32_BYTES, bucket_bytes=()
        )
        if not args.gradient_mib:
            assumptions.append(Assumption(what="gradients are fp32, 4 bytes for each parameter (--gradient-mib)"))
    if args.gradient_mib:
        workload = replace(
            workload, gradient_bytes=round(above_zero("--gradient-mib", args.gradient_mib) * MIB), bucket_bytes=()
        )
    samples = (workload.batch or 0) * workload.microbatches
    if args.gflops_per_sample:
        gflops = above_zero("--gflops-per-sample", args.gflops_per_sample)
        workload = replace(workload, flops=gflops * 1e9 * samples if samples else None, operations=())
    if args.activation_mib_per_sample:
        mib = above_zero("--activation-mib-per-sample", args.activation_mib_per_sample)
        workload = replace(workload, activation_bytes=round(mib * MIB) * workload.batch if workload.batch else None)
    if args.strategy:
        workload = replace(workload, strategy=Strategy(args.strategy))
    return replace(workload, assumptions=tuple(assumptions))


def _changed(workload: Workload, args: argparse.Namespace) -> Workload:
    """Apply the options that change a traced step."""
    batch = counted("--batch", args.batch) if args.batch else None
    if batch is not None and batch != workload.batch:
        workload = with_batch(workload, batch)
    if args.precision and Precision(args.precision) is not workload.precision:
        workload = with_precision(workload, Precision(args.precision))
    if args.accumulate:
        workload = with_microbatches(workload, counted("--accumulate", args.accumulate))
    if args.bucket_mib:
        workload = with_buckets(workload, round(above_zero("--bucket-mib", args.bucket_mib) * MIB))
    return workload
