"""`paceline bench step`: runs a few steps of the user's own script with each gradient strategy in turn."""

import argparse
import hashlib
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from paceline.cli.progress import ProgressLine
from paceline.cli.terminal import ascii_only, columns
from paceline.cli.values import counted, duration
from paceline.diagnosis.slow.steady_step import WARMUP_STEPS
from paceline.errors import NotEnoughEvidence, UsageError
from paceline.facts import Evidence, Job
from paceline.parts.comm.planner import strategies
from paceline.parts.comm.planner.strategy_times import PLAIN, StrategyTime, Try, combined, strategy_time
from paceline.parts.lab.cli.bench.baselines import BenchResult, conclude, judge, network_argv
from paceline.parts.lab.cli.bench.collective_run import new_folder
from paceline.parts.lab.cli.bench.question import machine_name, refuse_one_rank, with_ranks
from paceline.parts.lab.short_run import RunRequest, run_to_end, try_size
from paceline.parts.lab.views.bench_picture import strategies_svg
from paceline.parts.lab.views.bench_step import step_json, step_text, try_line
from paceline.recording.evidence import evidence

# `auto` measures before it chooses. Only the steps after the choice count.
_AUTO_STEPS = 60
# If a round of all strategies is shorter than this, a second round runs in the reverse order.
_SHORT_ROUND_SECONDS = 120.0
_MOST_RUN_SECONDS = 24 * 3600.0


@dataclass(slots=True, kw_only=True)
class StepPlan:
    """The strategies to try, and the result of each try."""

    names: tuple[str, ...]
    """Strategies, in the order of the first round."""
    steps: int
    """Steps of each try after its warm-up."""
    rounds: int | None
    """Number of tries per strategy; None: two if a round is short, else one."""
    first_step_seconds: float
    """Longest wait for one step."""
    argv: tuple[str, ...]
    """Arguments of `paceline run` before the strategy."""
    program: tuple[str, ...]
    """The script and its arguments."""
    job: Job
    """The job that `paceline run` makes of these arguments."""
    allow_lossy: bool = False
    """Whether `auto` may choose a strategy that is not exact."""
    tries: dict[str, list[Try]] = field(default_factory=dict)
    """Strategy -> its successful tries."""
    failures: dict[str, str] = field(default_factory=dict)
    """Strategy -> why a try of it failed. It is not tried again."""

    @property
    def is_local(self) -> bool:
        """Whether this command starts every host of the job."""
        return self.job.max_hosts == 1 or _names(self.argv, "--local-hosts")

    def run_argv(self, name: str, number: int) -> tuple[str, ...]:
        """The words of one try. Hosts that meet over a network get a new port for each try, because the last port may still be closing."""
        lossy = ("--set", "allow_lossy=true") if self.allow_lossy and name == strategies.AUTO else ()
        chosen = () if name == PLAIN else ("--gradients", name, *lossy)
        port: tuple[str, ...] = ()
        if not self.is_local and self.job.agents_port:
            port = ("--master-port", str(self.job.agents_port + number))
        return (*self.argv, *port, *chosen, *self.program)


def run_step(args: argparse.Namespace, environ: Mapping[str, str], tell: Callable[[str], None]) -> int:
    """Try every strategy. Print the step time of each, and which strategy to use.

    Raises:  UsageError: refused before anything was started; NotEnoughEvidence X05: the script does not run without a strategy
    """
    plan = plan_of(args, environ)
    folder = new_folder(environ, "s")
    if not (plan.is_local or plan.job.is_first):
        _follow(plan, folder, environ)
        tell("paceline  the first host has the answer")
        return 0
    with ProgressLine("bench step", len(plan.names) * (plan.rounds or 1), "tries", shown=not args.json) as progress:
        _try_all(plan, folder, environ, tell, progress)
    found = times_of(plan)
    result = _result(plan, found)
    judged = [one] if (one := judge(result, args)) is not None else []

    def show(baselines: list[str]) -> None:
        width, plain = columns(sys.stdout), ascii_only(sys.stdout)
        print(step_text(found, plan.program, plan.argv, baselines, width=width, ascii_only=plain), flush=True)

    asked = {"steps": plan.steps, "rounds": max(map(len, plan.tries.values())), "words": list(plan.argv)}
    facts = step_json(found, plan.program, asked)
    return conclude(args, [result], judged, facts, show, lambda: strategies_svg(found, plan.program))


def plan_of(args: argparse.Namespace, environ: Mapping[str, str]) -> StepPlan:
    """The plan of the command line. Everything that `paceline run` would refuse of a try is refused here.

    Raises:  UsageError U03: an unknown strategy; U05: one rank; others as `paceline run`
    """
    from paceline.cli.run import verb as run_verb

    names = _strategies(args.gradients)
    program = (*(("-m",) if args.module else ()), args.script, *args.script_args)
    argv = with_ranks(args, environ)
    job = run_verb.would_run((*argv, *program), environ)
    refuse_one_rank(job)
    if job.max_hosts > 1 and job.node_rank is None:
        raise UsageError(
            "U03",
            "hosts that meet by arrival may not start the same try",
            saw="--rdzv-backend c10d",
            next="paceline bench step --nnodes 2 --node-rank 0 --master-addr HOST ...",
        )
    plan = StepPlan(
        names=names,
        steps=counted("--steps", args.steps),
        rounds=counted("--rounds", args.rounds) if args.rounds else None,
        first_step_seconds=duration("--timeout", args.timeout) if args.timeout else 600.0,
        argv=argv,
        program=program,
        job=job,
        allow_lossy=args.allow_lossy,
    )
    if not plan.is_local and plan.rounds is None:
        # Every host must make the same tries, and each host would measure another time.
        plan.rounds = 1
    return plan


def times_of(plan: StepPlan) -> list[StrategyTime]:
    """One figure for each tried strategy, in the requested order."""
    plain = combined([one.samples for one in plan.tries[PLAIN]]) if plan.tries.get(PLAIN) else None
    return [
        strategy_time(
            name, plan.tries.get(name, []), plain, is_exact=is_exact(name, plan), failure=plan.failures.get(name, "")
        )
        for name in plan.names
    ]


def is_exact(name: str, plan: StepPlan) -> bool:
    """Whether the strategy gives the averages that plain DDP gives, up to the order of additions."""
    if name in (PLAIN, strategies.AUTO):
        return name == PLAIN or not plan.allow_lossy
    return strategies.read(name).is_exact


def samples_of(found: Evidence, most: int) -> tuple[float, ...]:
    """Seconds of the last steps after the warm-up, from the newest attempt. Each is the mean of the ranks that recorded the step."""
    newest = max((record.attempt for record in found.ranks), default=0)
    by_step: dict[int, list[float]] = {}
    for record in found.ranks:
        for step in record.steps if record.attempt == newest else ():
            if step.index > WARMUP_STEPS and step.duration_ns > 0:
                by_step.setdefault(step.index, []).append(step.duration_ns / 1e9)
    return tuple(fmean(by_step[index]) for index in sorted(by_step)[-most:])


def _strategies(text: str | None) -> tuple[str, ...]:
    if text is None:
        exact = [name for name in strategies.NAMES if name in strategies.EXACT]
        return (PLAIN, *exact, strategies.AUTO)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name != PLAIN:
            strategies.check(name)
    # The other strategies are compared with this one.
    return tuple(dict.fromkeys((PLAIN, *names)))


def _try_all(
    plan: StepPlan, folder: Path, environ: Mapping[str, str], tell: Callable[[str], None], progress: ProgressLine
) -> None:
    """Run the rounds, every second one in reverse order, so that a machine that becomes slower affects all strategies alike."""
    began, number, rounds = time.monotonic(), 0, plan.rounds or 1
    done = 0
    while done < rounds:
        for name in plan.names if done % 2 == 0 else plan.names[::-1]:
            if name not in plan.failures:
                place = folder / f"{number}-{name.partition(':')[0]}"
                line = _try(plan, name, place, number, rounds, environ)
                with progress.hidden():
                    tell(f"paceline  {line}")
            number += 1
            progress.at(number, rounds * len(plan.names))
        done += 1
        if plan.rounds is None and done == 1 and time.monotonic() - began < _SHORT_ROUND_SECONDS:
            rounds = 2


def _try(plan: StepPlan, name: str, folder: Path, number: int, rounds: int, environ: Mapping[str, str]) -> str:
    """Run one strategy once, note what it gave, and return a line about it."""
    extra = _AUTO_STEPS if name == strategies.AUTO else 0
    asked = RunRequest(
        argv=plan.run_argv(name, number),
        ranks=plan.job.ranks_per_host * (plan.job.max_hosts if plan.is_local else 1),
        steps=plan.steps + extra,
        first_step_seconds=plan.first_step_seconds,
    )
    try:
        seen = try_size(asked, folder, environ)
    except UsageError as failure:
        if name == PLAIN:
            raise NotEnoughEvidence("X05", failure.what, saw=failure.saw, next=failure.next) from failure
        plan.failures[name] = f"{failure.what}: {failure.saw}"
        return f"{name}: {failure.what}"
    found = evidence(next(folder.glob("r-*")))
    said, aside = what_ranks_said(found, name)
    if aside:
        # These steps used the script's own exchange, and would be counted as the strategy's.
        plan.failures[name] = aside
        return f"{name}: {aside}"
    tried = Try(
        strategy=name,
        run=seen.run,
        samples=samples_of(found, plan.steps),
        exchange_seconds=seen.measurement.exposed_communication_seconds,
        said=said,
    )
    plan.tries.setdefault(name, []).append(tried)
    return try_line(tried, number + 1, rounds * len(plan.names))


def what_ranks_said(found: Evidence, name: str) -> tuple[str, str]:
    """The ranks' last message about `auto`, "" for other names; and why no model could use the strategy, "" if a model did."""
    texts = [
        str(one.get("text")) for one in found.events if one["event"] == "notice" and one.get("topic") == "gradients"
    ]
    aside = [text for text in texts if "steps aside" in text or "nothing to do" in text]
    if aside and not any("at work" in text for text in texts):
        return "", aside[-1]
    said = texts[-1].removeprefix("--gradients auto: ") if texts and name == strategies.AUTO else ""
    return said, ""


def _follow(plan: StepPlan, folder: Path, environ: Mapping[str, str]) -> None:
    """On a host that is not the first: the same tries in the same order. The first host ends each try."""
    number = 0
    for done in range(plan.rounds or 1):
        for name in plan.names if done % 2 == 0 else plan.names[::-1]:
            run_to_end(plan.run_argv(name, number), folder / str(number), environ, _MOST_RUN_SECONDS)
            number += 1


def _result(plan: StepPlan, found: Sequence[StrategyTime]) -> BenchResult:
    script = Path(plan.program[-1] if plan.program[0] == "-m" else plan.program[0])
    try:
        digest = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    except OSError:
        digest = ""
    key = {
        "what": "step",
        "script": [shlex.join(plan.program), digest],
        "machines": [machine_name()],
        "hosts": plan.job.max_hosts,
        "ranks": plan.job.max_hosts * plan.job.ranks_per_host,
        "network": network_argv(plan.argv),
    }
    return BenchResult(name="", key=key, points={one.strategy: one.step for one in found if one.step is not None})


def _names(argv: Sequence[str], option: str) -> bool:
    return any(word.partition("=")[0].replace("_", "-") == option for word in argv)
