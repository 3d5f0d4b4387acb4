"""What `paceline why PID` says of broken jobs that a plain launcher has started, and that prepared nothing.

    python bench/attached.py [NAME...]           the hangs of examples/broken under torchrun, one after the other
    python bench/attached.py --launcher alone    each rank as a program of its own, as a batch system starts it
    python bench/attached.py --without-ptrace    as where ptrace_scope is 1: neither memory nor stacks
    python bench/attached.py --nccl              on NCCL, with a library in place of the GPUs, after make torch-2.15.0
    python bench/attached.py --keep              also keep what was seen where the answer is right, for tests/attach; as root
    python bench/attached.py --results FILE      go on from these results (default: a file in the folder for temporary files)

A job is left for some seconds after it broke, then asked once. Right is the cause, the ranks and the line.
"""

import argparse
import json
import lzma
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / place) for place in ("tests/faults", "tests/shared", "tests/torches", "src")]

from catalogue import Fault, Trial, faults, hung_on_nccl, live_on_nccl  # noqa: E402
from elsewhere import go_elsewhere  # noqa: E402
from harness import Watched, clear_away, environment_of, interpreter, start  # noqa: E402
from scoring import ALARMS  # noqa: E402

from paceline.probes.stacks import py_spy_program  # noqa: E402

LATER_SECONDS, READY_SECONDS = 8.0, 60.0
WITHOUT_A_MARK_SECONDS = 10.0
# Nothing here hangs: whoever watches the steps sees it.
_HANGS = ("stall", "waiting", "divergence", "start", "")
_TRIALS = (Trial(), Trial(rank=2, at_step=18, world_size=3))
RECORDED = REPOSITORY / "tests" / "attach" / "recorded"
_ATTACHED = REPOSITORY / "examples" / "attached"
# Only from outside are these what they are: under `paceline run` something else ends or names them.
OWN = {
    "torchrun": (
        Fault(name="c15_raised_stays", code="C15", what="", script=_ATTACHED / "c15_raised_stays.py"),
        Fault(
            name="r11_frozen_store", code="R11", what="", script=_ATTACHED / "r11_frozen_store.py", names_nobody=True
        ),
    ),
    "alone": (Fault(name="c16_left_alone", code="C16", what="", script=_ATTACHED / "c16_left_alone.py"),),
}


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One job."""

    name: str
    launcher: str
    rank: int
    cause: bool
    ranks: bool
    seconds: float
    first: str
    said: str = ""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*")
    arguments.add_argument("--launcher", choices=("torchrun", "alone"), default="torchrun")
    arguments.add_argument("--keep", action="store_true")
    arguments.add_argument("--nccl", action="store_true")
    arguments.add_argument("--without-ptrace", action="store_true")
    arguments.add_argument("--trial", type=int, default=0, help="which rank of how many (default 0: rank 1 of 2)")
    arguments.add_argument("--results", type=Path, default=Path(gettempdir()) / "paceline-attached.jsonl")
    options = arguments.parse_args()
    if options.keep:
        go_elsewhere("bench/attached.py", sys.argv[1:])
    done = list(results(options.results))
    known = {(one.name, one.launcher, one.rank) for one in done}
    rows = on_device() if options.nccl else chosen(options.launcher)
    for fault in (row for row in rows if not options.names or any(word in row.name for word in options.names)):
        trial = _TRIALS[options.trial]
        rank = trial.rank if fault.fixed_rank is None else fault.fixed_rank
        if (fault.name, options.launcher, rank) in known:
            continue
        varied = Trial(rank=rank, at_step=trial.at_step, world_size=trial.world_size)
        one, seen = scored(fault, varied, options.launcher, without_ptrace() if options.without_ptrace else ())
        if one is None:
            print(f"   {fault.name} ended by itself", flush=True)
            continue
        if options.keep and one.cause and one.ranks:
            keep(fault, varied, options.launcher, seen)
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(one)) + "\n")
        done.append(one)
        print(
            f"{'+' if one.cause else '-'}{'+' if one.ranks else '-'} {one.seconds:5.1f} s  {one.name}: {one.first}",
            flush=True,
        )
    report(done)
    return 0


def without_ptrace() -> tuple[str, ...]:
    """What a command begins with that may neither read memory nor stacks. py-spy reads /proc/PID/mem as root: a program that refuses is in
    its place, in a mount namespace of the command's own.
    """
    spy = py_spy_program()
    refuses = Path(gettempdir()) / "paceline-refused-py-spy"
    refuses.write_text("#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n")
    refuses.chmod(0o755)
    covered = (
        "unshare",
        "--mount",
        "sh",
        "-ec",
        'mount --bind "$1" "$2"; shift 2; exec "$@"',
        "sh",
        str(refuses),
        str(spy),
    )
    return (*covered, sys.executable, str(REPOSITORY / "tests" / "shared" / "without_ptrace.py"))


def on_device() -> Iterator[Fault]:
    """The hangs that are live on NCCL."""
    yield from (row for row in live_on_nccl() if row.code[0] in "NMR")
    # Every rank is in the collective that does not end.
    yield replace(hung_on_nccl(), code="N11", expected=frozenset({"N11"}), names_nobody=True)


def chosen(launcher: str) -> Iterator[Fault]:
    """The faults that can be run under any launcher: the hangs, and what looks like one."""
    for fault in (*faults(), *OWN[launcher]):
        fits = fault.is_decoy or fault in OWN[launcher] or (fault.code[:1] in "NMR" and fault.level in _HANGS)
        plain = not (fault.starts_itself or fault.command or fault.environment or fault.why_not_here or fault.nccl)
        if fits and plain:
            yield fault


def scored(fault: Fault, trial: Trial, launcher: str, by: Sequence[str]) -> tuple[Scored | None, bytes]:
    """Start one job, break it, ask once; None: it ended before. Also what was seen. `by`: what the command that asks begins with."""
    with TemporaryDirectory(prefix="pl-attached-") as folder:
        directory = Path(folder)
        job = started(fault, trial, launcher, directory)
        try:
            # A rendezvous has no step at which it breaks.
            says = not fault.is_decoy and not fault.code.startswith("R0")
            limit = time.monotonic() + (READY_SECONDS if says else WITHOUT_A_MARK_SECONDS)
            out = directory / "out.txt"
            while "broken at" not in out.read_text(errors="replace") and time.monotonic() < limit:
                if job.process.poll() is not None:
                    break
                time.sleep(0.2)
            time.sleep(LATER_SECONDS)
            if job.process.poll() is not None:
                return None, b""
            began = time.monotonic()
            asked = subprocess.run(
                [*by, sys.executable, "-m", "paceline", "why", str(job.process.pid), "--json", "--record"],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "XDG_STATE_HOME": folder},
                capture_output=True,
                text=True,
                check=False,
            )
            seconds = time.monotonic() - began
            seen = next((file.read_bytes() for file in directory.glob("**/hosts/*/attached.json")), b"")
        finally:
            clear_away(job)
    about = {"name": fault.name, "launcher": launcher, "rank": trial.rank, "seconds": seconds}
    if asked.returncode:
        said = (asked.stderr.strip() or asked.stdout.strip()).splitlines()
        return Scored(**about, cause=False, ranks=False, first=(said or ["no answer"])[0]), b""
    answer = json.loads(asked.stdout)
    findings = [one for one in answer["findings"] if one["level"] not in ("slow", "quality")]
    cause, ranks = right(fault, trial, findings)
    first = "nothing"
    if findings:
        first = "{level}[{code}] ranks {ranks} ({confidence})".format_map(findings[0])
    said = json.dumps({"findings": findings, "not_judged": answer["not_judged"]})
    return Scored(**about, cause=cause, ranks=ranks, first=first, said=said), seen


def right(fault: Fault, trial: Trial, findings: Sequence[dict[str, Any]]) -> tuple[bool, bool]:
    """Whether the first finding has the cause, and the ranks. A healthy job is told of no alarm."""
    if fault.is_decoy:
        return (not any(one["level"] in ALARMS for one in findings),) * 2
    if not findings:
        return False, False
    wanted = fault.right_ranks(trial)
    return (
        findings[0]["code"] in (fault.expected or {fault.code}),
        wanted is None or frozenset(findings[0]["ranks"]) in wanted,
    )


def keep(fault: Fault, trial: Trial, launcher: str, seen: bytes) -> None:
    """Keep what was seen, and what is right to say of it."""
    wanted = fault.right_ranks(trial)
    kept = {
        "codes": [] if fault.is_decoy else sorted(fault.expected or {fault.code}),
        "ranks": None if wanted is None else [sorted(ranks) for ranks in wanted],
        "evidence": json.loads(seen),
    }
    RECORDED.mkdir(exist_ok=True)
    # Where this machine has its Python is nobody's business.
    text = json.dumps(kept).replace(sys.base_prefix, "/usr")
    (RECORDED / f"{fault.name}-{launcher}.json.xz").write_bytes(lzma.compress(text.encode()))


def started(fault: Fault, trial: Trial, launcher: str, directory: Path) -> Watched:
    """The job under a plain launcher."""
    script = [str(fault.script), *fault.argv(trial)]
    python, more = interpreter(fault), {**environment_of(fault), "PYTHONPATH": ""}
    port = free_port()
    if launcher == "torchrun":
        words = [
            str(python),
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(trial.world_size),
            "--master-port",
            str(port),
            *script,
        ]
        return start(words, directory, more, python)
    each = (
        f'RANK={rank} LOCAL_RANK={rank} WORLD_SIZE={trial.world_size} MASTER_ADDR=localhost MASTER_PORT={port} {python} "$@" &'
        for rank in range(trial.world_size)
    )
    return start(["bash", "-c", "\n".join([*each, "wait"]), "ranks", *script], directory, more, python)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def results(path: Path) -> Iterator[Scored]:
    if path.exists():
        yield from (Scored(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())


def report(done: list[Scored]) -> None:
    """Shares of what was right, and how long it took."""
    if done:
        seconds = sorted(one.seconds for one in done)
        right = f"cause {sum(one.cause for one in done)}, ranks {sum(one.ranks for one in done)}"
        print(f"{len(done)} jobs: {right}; median {statistics.median(seconds):.1f} s, longest {seconds[-1]:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
