"""The faults of examples/broken as rows: how each is started, what should be said of it, and what it needs.

A script's own docstring has its code, what is broken, and the command that runs it; a new script is a new row without an edit
here. Only what a script cannot know of itself stands in `SPECIAL`, by the script's name or by its code.
"""

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).resolve().parent.parent.parent / "examples" / "broken"
_SCRIPT = re.compile(r"(decoy|[nmcrs]\d\d)_\w+")
_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")
_FIRST_LINE = re.compile(r"(?P<code>[NMCRS]\d\d|decoy):\s*(?P<what>.+)", re.IGNORECASE)
# Two ranks that disagree: nobody can tell which one is wrong.
_BETWEEN_TWO = ("M01", "M02", "M03", "M04", "M06", "M09", "M10", "M16", "M19")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One way to run a fault: who is broken and when, on how many ranks of how many hosts."""

    rank: int = 1
    at_step: int = 12
    world_size: int = 2
    hosts: int = 1

    def __str__(self) -> str:
        return (
            f"rank {self.rank} of {self.world_size} on {self.hosts} host{'s' * (self.hosts > 1)}, step {self.at_step}"
        )


FIRST_TRIALS = (
    Trial(),
    Trial(rank=3, at_step=25, world_size=4, hosts=2),
    Trial(rank=0, at_step=18, world_size=3, hosts=3),
    Trial(rank=2, at_step=30, world_size=3, hosts=1),
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row. `code` is empty for a decoy: a healthy job that looks ill.

    `command`: the arguments of `paceline run` before the script; `environment`: what stands before those. `starts_itself`: the script
    makes hosts and starts `paceline run` in each. `expected`: codes that count as right. `names_nobody`: no rank is to blame, so
    none is compared. `fixed_rank`: only this rank can be the broken one. `budget_seconds`: from the injection to the last moment at which
    it may be judged. `said_by`: what torchrun's output must hold for its cause to count as told; None: it never tells. `torch`: another
    version than the running interpreter's, installed by `make torch-VERSION`. `nccl`: on NCCL and GPUs, for which a library stands in (see
    build_fake_gpu.py); then `torch` is a CUDA build. `to_its_end`: the job is not ended once it is judged.
    Of a decoy `expected` are the codes that are true of it.
    """

    name: str
    code: str
    what: str
    script: Path
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    starts_itself: bool = False
    expected: frozenset[str] = frozenset()
    names_nobody: bool = False
    fixed_rank: int | None = None
    level: str = ""
    budget_seconds: float = 40.0
    needs_root: bool = False
    trials: tuple[Trial, ...] = FIRST_TRIALS
    said_by: str | None = None
    why_not_here: str = ""
    torch: str = ""
    nccl: bool = False
    to_its_end: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_decoy(self) -> bool:
        return not self.code

    def trial(self, number: int) -> Trial:
        """The trial with this number, from 0; more than there are begin again with another step."""
        trial = self.trials[number % len(self.trials)]
        rank = trial.rank if self.fixed_rank is None else self.fixed_rank
        again = number // len(self.trials)
        return Trial(rank=rank, at_step=trial.at_step + 7 * again, world_size=trial.world_size, hosts=trial.hosts)

    def right_ranks(self, trial: Trial) -> tuple[frozenset[int], ...] | None:
        """Sets of ranks of which any counts as right. Of two ranks that disagree nobody can tell which one is wrong."""
        if self.names_nobody or self.is_decoy:
            return None
        culprit = frozenset({trial.rank})
        if self.code == "M17" or self.name == "m19_shard_twice":
            return tuple(culprit | {other} for other in range(trial.world_size) if other != trial.rank)
        if self.code in _BETWEEN_TWO and trial.world_size == 2:
            return (culprit, frozenset({0, 1}))
        return (culprit,)

    def argv(self, trial: Trial) -> tuple[str, ...]:
        """The script's own arguments for a trial."""
        varied = ("--rank", str(trial.rank), "--at-step", str(trial.at_step))
        return (*varied, *self.arguments, *(word for pair in self.options.items() for word in pair))


ONE_HOST = tuple(
    Trial(rank=rank, at_step=step, world_size=size) for rank, step, size in ((1, 12, 2), (3, 25, 4), (2, 18, 3))
)
NOT_THE_FIRST = (
    Trial(),
    Trial(rank=3, at_step=25, world_size=4, hosts=2),
    Trial(rank=2, at_step=18, world_size=3, hosts=3),
)
ITS_OWN = (Trial(hosts=2), Trial(hosts=2, at_step=25), Trial(hosts=2, at_step=30))
_LONG = {"--steps": "100000"}
_SLOW: dict[str, Any] = {"level": "slow", "budget_seconds": 90.0, "options": _LONG}
_STALL: dict[str, Any] = {"level": "stall", "budget_seconds": 40.0, "options": _LONG}
_CRASH: dict[str, Any] = {"level": "crash", "budget_seconds": 40.0}

# By the first letter of a code, then by code, then by the script's name; the later ones win.
SPECIAL: dict[str, dict[str, Any]] = {
    "N": _STALL,
    "M": {"level": "divergence", "budget_seconds": 40.0},
    "C": _CRASH,
    "R": {"level": "start", "budget_seconds": 60.0},
    "S": _SLOW,
    "decoy": {"budget_seconds": 60.0, "trials": ONE_HOST},
    "decoy_compile": {"expected": frozenset({"N05"})},
    "decoy_evaluation": {"expected": frozenset({"N04"})},
    # Rank 0 alone saves every 40 steps: that it costs so much of a step is true of it as well.
    "decoy_save": {"expected": frozenset({"N04", "S13"})},
    "decoy_slow_rank": {"expected": frozenset({"S01"})},
    "N04": {"level": "waiting", "fixed_rank": 0},
    "N05": {"level": "waiting"},
    "N06": {"level": ""},
    "N08": {"needs_root": True},
    "N09": {"needs_root": True},
    "M05": {"level": ""},
    "M07": {"level": ""},
    "M08": {"level": ""},
    "M09": {"said_by": "appears not to match sizes of the same param|do not match"},
    "M11": {"level": ""},
    # All ranks do it, or are told it.
    "m08_everywhere": {"names_nobody": True},
    "M12": {"names_nobody": True},
    "M14": {"names_nobody": True},
    "M15": {"names_nobody": True},
    "M18": {"names_nobody": True, "level": "quality"},
    "M19": {"level": "quality"},
    "M20": {"names_nobody": True},
    "C01": {"said_by": "KeyError|Error:"},
    "C02": {"needs_root": True, "said_by": "out of memory|OOM"},
    "C04": {"said_by": "Signal 9|SIGKILL"},
    "C05": {"said_by": "Signal 11|SIGSEGV"},
    "C07": {"said_by": "OutOfMemoryError"},
    "C08": {"needs_root": True, "said_by": "shared memory|No space left"},
    "C09": {"needs_root": True, "said_by": "No space left"},
    "C10": {"said_by": "Too many open files"},
    "C12": {"said_by": "DataLoader worker .*killed by signal"},
    "C11": {"needs_root": True, "said_by": "can't start new thread|Resource temporarily unavailable"},
    "R01": {"names_nobody": True},
    "R04": {"fixed_rank": 0, "trials": ONE_HOST, "said_by": "EADDRINUSE|already in use"},
    # Rank 0 is where the others look: with it broken, every other one would be the one that does not find it.
    "R02": {"trials": NOT_THE_FIRST},
    "R05": {"said_by": "interface"},
    "R06": {"trials": NOT_THE_FIRST},
    "R03": {"trials": NOT_THE_FIRST, "said_by": "resolve|Name or service not known|gai error"},
    "R07": {"said_by": "environment variable .* expected"},
    "S02": {"needs_root": True},
    "S03": {"names_nobody": True},
    "S04": {"names_nobody": True},
    "S07": {"needs_root": True, "names_nobody": True},
    "S08": {"needs_root": True, "names_nobody": True},
    "S11": {"fixed_rank": 0},
    "S13": {"fixed_rank": 0},
}


def faults(gallery: Path = GALLERY) -> tuple[Fault, ...]:
    """Every script of the gallery as a row, by code, decoys last."""
    found = [fault_of(path) for path in sorted(gallery.glob("*.py")) if _SCRIPT.fullmatch(path.stem)]
    return tuple(
        sorted(found, key=lambda fault: (fault.is_decoy, "NMCRS".find(fault.code[:1]), fault.code, fault.name))
    )


# Faults of each kind whose judgement rests on what torch shows: its flight recorder, its hooks, its messages.
ON_AN_OLD_TORCH = (
    "n01_asleep",
    "n02_stopped",
    "n03_loader_stuck",
    "n06_busy_loop",
    "m01_broadcast",
    "m05_uneven",
    "c01_exception",
    "c04_killed",
    "r04_port_in_use",
    "s01_straggler",
)
OLD_TORCH = "2.8.0"


def on_an_old_torch(rows: Iterable[Fault] | None = None) -> tuple[Fault, ...]:
    """Ten faults and every decoy where torch shows less than the newest does."""
    return tuple(
        replace(row, name=f"{row.name}_on_torch_{OLD_TORCH}", torch=OLD_TORCH)
        for row in (faults() if rows is None else rows)
        if row.is_decoy or row.name in ON_AN_OLD_TORCH
    )


# With NCCL, through the library that stands in for it and for a GPU, every fault is tried but these.
_A_KERNEL_COMPUTES = "a kernel computes the value by which rank 1 goes another way, and the stand-in computes nothing"
_TIME_OF_A_NETWORK = (
    "its evidence is how long NCCL's own transfers take on a network, and the stand-in transfers nothing"
)
NOT_ON_NCCL = {
    "m07_skipped_step": _A_KERNEL_COMPUTES,
    "m11_own_decision": _A_KERNEL_COMPUTES,
    "m12_alone": "NCCL cannot have it: the script makes no process group",
    "r05_interface": "NCCL cannot have it: the variable is gloo's",
    "s07_bandwidth": _TIME_OF_A_NETWORK,
    "s08_latency": _TIME_OF_A_NETWORK,
    "s11_hot_spot": _TIME_OF_A_NETWORK,
    "decoy_compile": "it compiles kernels for a GPU",
}
NCCL_TORCHES = ("2.13.0", "2.15.0")


def on_nccl(torch: str, rows: Iterable[Fault] | None = None) -> tuple[Fault, ...]:
    """Every fault and decoy that is tried with NCCL, on a CUDA build of this torch."""
    return tuple(
        replace(row, torch=torch, nccl=True, arguments=(*row.arguments, "--backend", "nccl"))
        for row in (faults() if rows is None else rows)
        if row.name not in NOT_ON_NCCL
    )


# A rank that does not come, a process that stands still, calls that differ, groups and messages that wait for each other, a time-out.
LIVE_ON_NCCL = (
    "n01_asleep",
    "n02_stopped",
    "m01_broadcast",
    "m16_crossed_groups",
    "m17_both_receive",
    "c13_outlasted",
    "s01_straggler",
)


def live_on_nccl(rows: Iterable[Fault] | None = None) -> tuple[Fault, ...]:
    """Faults with NCCL on the newest torch that is tried with it."""
    by_name = {row.name: row for row in on_nccl(NCCL_TORCHES[-1], rows)}
    return tuple(replace(by_name[name], name=f"{name}_on_nccl") for name in LIVE_ON_NCCL)


def hung_on_nccl(rows: Iterable[Fault] | None = None) -> Fault:
    """No fault of a script: collective number 60 never ends on the device, though every rank is in it. Nobody is to blame."""
    (healthy,) = (row for row in on_nccl(NCCL_TORCHES[-1], rows) if row.name == "n01_asleep")
    return replace(
        healthy,
        name="hung_on_nccl",
        options={"--steps": "100000", "--at-step": "100000"},
        environment={"FAKE_NCCL_HANGS_FROM": "59"},
        to_its_end=True,
        budget_seconds=0.0,
    )


# What the exchange has a part in: who is waited for, who is gone, what differs, who is slow.
OVER_OUR_EXCHANGE = (
    "n01_asleep",
    "n02_stopped",
    "n06_busy_loop",
    "c04_killed",
    "c06_leaves",
    "m02_shapes",
    "s01_straggler",
)
# 1.1 MB of gradients in one bucket: more than goes to gloo.
_WIDE = ("--width", "512")
_SMALL = ("n02_stopped", "c06_leaves")
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "paceline": ((), ("--backend", "paceline")),
    "direct": (("--gradients", "direct"), ()),
}


def over_our_exchange(rows: Iterable[Fault] | None = None) -> tuple[Fault, ...]:
    """The same faults where torch's flight recorder sees nothing: on the backend `paceline`, and under `--gradients direct`.

    Large exchanges and small ones, which take other ways.
    """
    by_name = {row.name: row for row in (faults() if rows is None else rows)}
    return tuple(
        replace(
            by_name[name],
            name=f"{name}_over_{way}",
            command=(*by_name[name].command, *command),
            arguments=(*by_name[name].arguments, *arguments, *(() if name in _SMALL else _WIDE)),
        )
        for way, (command, arguments) in WAYS.items()
        for name in OVER_OUR_EXCHANGE
    )


# The crashes that are over within seconds: an exception, a kill from outside, a kill for what the program did, a rank that leaves, no room
# in shared memory and on a disk. What --resume does after a kill for memory and after that of a loader worker is in
# tests/process/test_resume.py.
WITH_RESUME = ("c01_exception", "c04_killed", "c05_segfault", "c06_leaves", "c08_shared_memory", "c09_disk_full")


def with_resume(way: str, rows: Iterable[Fault] | None = None) -> tuple[Fault, ...]:
    """The short crashes with `--resume auto` or `off`, each until its job ends by itself, which may be after three kills at one step."""
    return tuple(
        replace(
            row,
            name=f"{row.name}_resume_{way}",
            command=(*row.command, "--resume", way),
            to_its_end=True,
            budget_seconds=300.0,
        )
        for row in (faults() if rows is None else rows)
        if row.name in WITH_RESUME
    )


def fault_of(path: Path) -> Fault:
    """A script's row, from its docstring.

    Raises:  ValueError: the docstring lacks its first line or the command
    """
    document = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    decoy = path.stem.startswith("decoy_")
    first = _FIRST_LINE.match(document)
    if first is None and not decoy:
        raise ValueError(f"{path.name}: its docstring does not begin with a code, as in 'N01: rank 1 ...'")
    code = "" if decoy or first is None else first["code"].upper()
    typed = command_of(document)
    if typed is None:
        raise ValueError(f"{path.name}: its docstring has no line that begins with 'paceline run' or 'python'")
    environment = dict(word.split("=", 1) for word in typed if _ASSIGNMENT.match(word))
    argv = [word for word in typed if not _ASSIGNMENT.match(word)]
    place = next((i for i, word in enumerate(argv) if word.endswith(path.name)), None)
    if place is None:
        raise ValueError(f"{path.name}: the command in its docstring does not run it")
    own, fixed_rank = _without_rank(argv[place + 1 :])
    itself = argv[0] == "python"
    row: dict[str, Any] = {"fixed_rank": fixed_rank, **({"trials": ITS_OWN} if itself else {})}
    row["needs_root"] = "needs root" in document.lower()
    for key in ("decoy" if decoy else code[:1], code, path.stem):
        row.update({name: value for name, value in SPECIAL.get(key, {}).items() if name != "needs_root" or value})
    return Fault(
        name=path.stem,
        code=code,
        what=first["what"].strip() if first else document.splitlines()[0],
        script=path,
        command=() if itself else tuple(_without_size(argv[2:place])),
        arguments=tuple(own),
        starts_itself=itself,
        environment=environment,
        expected=row.pop("expected", frozenset({code} if code else ())),
        **row,
    )


def command_of(document: str) -> list[str] | None:
    """The words of the first line of a docstring that is a command."""
    for line in document.splitlines():
        argv = line.strip().removeprefix("$ ").partition("  #")[0].split()
        program = next((word for word in argv if not _ASSIGNMENT.match(word)), "")
        if program in ("paceline", "python"):
            return shlex.split(" ".join(argv))
    return None


def variants(rows: Iterable[Fault], repeat: int) -> Iterator[tuple[Fault, int]]:
    """Each row `repeat` times, round by round, so that an early stop leaves every fault tried about equally often."""
    rows = list(rows)
    for number in range(repeat):
        for row in rows:
            yield row, number


def _without_rank(argv: list[str]) -> tuple[list[str], int | None]:
    """The script's words without `--rank N`, and that N: the only rank that this fault is for."""
    if "--rank" not in argv:
        return argv, None
    place = argv.index("--rank")
    return argv[:place] + argv[place + 2 :], int(argv[place + 1])


def _without_size(argv: Iterable[str]) -> Iterator[str]:
    """The command's words without those that each trial sets itself."""
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word in ("--nproc-per-node", "--nproc_per_node", "--local-hosts"):
            skip = True
        elif not word.startswith(("--nproc-per-node=", "--nproc_per_node=", "--local-hosts=")):
            yield word
