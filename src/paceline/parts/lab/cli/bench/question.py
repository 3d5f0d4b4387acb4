"""Turns a command line of `paceline bench` into the ranks' question: sizes, types, repetitions, number of ranks."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from paceline.cli.values import counted, duration
from paceline.errors import UsageError
from paceline.facts import Job
from paceline.parts.lab.cli.bench.options import known
from paceline.parts.lab.nccl_tests import AVERAGES, FACTORS, OPERATIONS, TYPES, size_bytes, size_text, sizes

PROGRAM = "paceline.parts.lab.worker.bench_collectives"
_FIRST, _LAST, _PAIRS_LAST = "8", "128M", "4M"
_MOST_SIZES = 4096
# parts/lab/worker/bench_collectives.py varies the reduction of these; nothing outside a rank imports that module.
REDUCING = ("all_reduce", "reduce_scatter", "sendrecv")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchQuestion:
    """The measurement that the ranks make. They get it as JSON."""

    collective: str
    """Name of the collective."""
    sizes: tuple[int, ...]
    """Sizes in bytes, in order; with `pairs` the smallest and the largest."""
    iterations: int
    """Counted iterations of each size."""
    warmup: int
    """Warm-up iterations of each size."""
    aggregate: int
    """Operations per iteration."""
    cycles: int
    """Number of cycles over all sizes."""
    types: tuple[str, ...]
    """Types of the elements."""
    operations: tuple[str, ...]
    """Reductions of the elements."""
    roots: tuple[int, ...]
    """Roots of a broadcast; empty: every rank in turn."""
    check: int
    """Number of data checks; 0: none."""
    average: int
    """How the ranks' times are combined: 0 rank 0's time, 1 mean, 2 minimum, 3 maximum."""
    backend: str | None
    """Name of the backend; None: the ranks choose the best one."""
    device: str | None
    """Device of the tensors, "cpu" or "cuda"; None: the ranks choose the best one."""
    timeout_seconds: float
    """Timeout in seconds: a collective that takes longer has failed."""
    size_seconds: float
    """Seconds per size: a size that takes longer gets fewer iterations."""
    pairs: bool
    """Whether to time a sendrecv between each two hosts, or between each two ranks of one host."""

    def cell_count(self, ranks: int) -> int:
        """How many figures are measured at most. `ranks`: of the group."""
        operations = len(self.operations) if self.collective in REDUCING else 1
        roots = (len(self.roots) or ranks) if self.collective == "broadcast" else 1
        return self.cycles * len(self.types) * operations * roots * len(self.sizes)

    def plain(self) -> dict[str, object]:
        """The question in the form that the ranks read."""
        return asdict(self)


def question_of(args: argparse.Namespace) -> BenchQuestion:
    """The question of a collective.

    Raises:  UsageError U03: an unknown name; impossible sizes; U03: an impossible number or duration
    """
    (collective,) = known("", args.what, tuple(FACTORS), every=None)
    if args.pairs and collective != "sendrecv":
        raise UsageError(
            "U03",
            f"--pairs times a sendrecv between each two hosts, not {collective}",
            saw=f"{collective} --pairs",
            next="paceline bench --pairs",
        )
    roots = () if args.root == "all" else (counted("-r", args.root, zero=True),)
    return BenchQuestion(
        collective=collective,
        sizes=_sizes(args),
        iterations=counted("-n", args.iters),
        warmup=counted("-w", args.warmup_iters, zero=True),
        aggregate=counted("-m", args.agg_iters),
        cycles=counted("-N", args.run_cycles),
        types=known("-d", args.datatype, tuple(TYPES)),
        operations=known("-o", args.op, OPERATIONS),
        roots=roots,
        check=counted("-c", args.check, zero=True),
        average=_average(args.average),
        backend=args.backend,
        device=args.device,
        timeout_seconds=duration("--timeout", args.timeout) if args.timeout else 120.0,
        size_seconds=duration("--size-time", args.size_time),
        pairs=args.pairs,
    )


def with_ranks(args: argparse.Namespace, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments of `paceline run`. Without a number of ranks, one is added: all GPUs of one host, or 2.

    Raises:  UsageError U03: -g or -t is not a number
    """
    argv: tuple[str, ...] = args.run_argv
    given = any(word.partition("=")[0] in ("--nproc-per-node", "--nproc_per_node") for word in argv)
    if getattr(args, "ngpus", None) or getattr(args, "nthreads", None):
        if given:
            raise UsageError(
                "U03",
                "-g and --nproc-per-node say the same thing",
                saw=" ".join(argv),
                next="leave --nproc-per-node out",
            )
        ranks = counted("-g", args.ngpus or "1") * counted("-t", args.nthreads or "1")
        return ("--nproc-per-node", str(ranks), *argv)
    several = any(word.partition("=")[0] in ("--nnodes", "--local-hosts", "--local_hosts") for word in argv)
    if given or several or environ.get("PET_NPROC_PER_NODE") or environ.get("PET_NNODES"):
        return argv
    from paceline.probes.gpus import count_visible

    return ("--nproc-per-node", str(max(2, count_visible(environ)[0] or 0)), *argv)


def refuse_one_rank(job: Job) -> None:
    """Raises:  UsageError U05: there is only one rank, so it has no peer."""
    if job.max_hosts * job.ranks_per_host < 2:
        raise UsageError(
            "U05",
            "one rank has no other rank to exchange with",
            saw=f"{job.max_hosts} host, {job.ranks_per_host} rank",
            next="--nproc-per-node 2",
        )


def refuse_root(question: BenchQuestion, ranks: int) -> None:
    """Raises:  UsageError U03: a root that is not a rank."""
    if question.collective == "broadcast" and any(root >= ranks for root in question.roots):
        raise UsageError(
            "U03", f"-r {question.roots[0]} is no rank of this job", saw=f"{ranks} ranks, 0 to {ranks - 1}", next="-r 0"
        )


def _sizes(args: argparse.Namespace) -> tuple[int, ...]:
    last_default = _PAIRS_LAST if args.pairs else _LAST
    first = _size("-b", args.minbytes or _FIRST)
    last = _size("-e", args.maxbytes or last_default)
    if first > last:
        default = "" if args.maxbytes else f" (-e is {last_default} unless it is given)"
        raise UsageError(
            "U03",
            f"the smallest size, {size_text(first)}, is above the largest, {size_text(last)}{default}",
            saw=f"-b {args.minbytes or _FIRST} -e {args.maxbytes or last_default}",
            next=f"-b {size_text(first)} -e {size_text(first)}",
        )
    if args.pairs:
        return (first, last)
    if args.stepbytes and args.stepfactor:
        raise UsageError(
            "U03",
            "-i and -f are two ways from one size to the next",
            saw=f"-i {args.stepbytes} -f {args.stepfactor}",
            next="leave -f out",
        )
    step = _size("-i", args.stepbytes) if args.stepbytes else None
    factor = None if step else counted("-f", args.stepfactor or "2")
    # As in nccl-tests, a factor of 1 means no factor.
    factor = None if factor == 1 else factor
    if not factor and (last - first) // (step or size_bytes("1M") or 1) >= _MOST_SIZES:
        raise UsageError(
            "U03",
            f"more than {_MOST_SIZES} sizes",
            saw=f"from {size_text(first)} to {size_text(last)} in steps of {size_text(step or 1024**2)}",
            next=f"-i {size_text(1 << ((last - first) // 32).bit_length())}",
        )
    return tuple(sizes(first, last, factor=factor, step=step))


def _size(option: str, text: str) -> int:
    value = size_bytes(text)
    if not value:
        what = "cannot be: a size is 1 byte or more" if value == 0 else f"{text!r} is no size"
        raise UsageError("U03", f"{option} {what}", saw="sizes are 8, 4K, 128M or 1G", next=f"{option} 1M")
    return value


def _average(text: str) -> int:
    number = counted("-a", text, zero=True)
    if number >= len(AVERAGES):
        means = ", ".join(f"{place} {name}" for place, name in enumerate(AVERAGES))
        raise UsageError("U03", f"-a {text} is none of 0 to 3", saw=means, next="-a 1")
    return number


def machine_name() -> str:
    """This machine's own name."""
    return os.uname().nodename
