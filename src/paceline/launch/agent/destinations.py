"""Where the output of each rank goes, from torchrun's options. Pure."""

from pathlib import Path
from string import Template

from paceline.facts import Console
from paceline.launch.agent.output import Destination
from paceline.recording.layout import RunDirectory

STDOUT, STDERR = 1, 2
EVERY_LOCAL_RANK = -1
_TORCHRUN_NAMES = {"out": "stdout", "err": "stderr"}


def destinations(
    console: Console, directory: RunDirectory, host: str, attempt: int, rank: int, local_rank: int, role: str, run: str
) -> tuple[Destination, Destination]:
    """The destinations of one rank's stdout and stderr.

    Every rank has complete logs in the recording. A redirected stream stays off the terminal; a teed one is prefixed there; the
    filter of local ranks applies to the terminal only. `--log-dir` adds torchrun's files: DIR/RUN/attempt_N/LOCAL_RANK/stdout.log.

    Source:  torch 2.13 torch/distributed/elastic/multiprocessing/api.py, `DefaultLogsSpecs.reify`
    """

    def one(name: str, bit: int, fd: int, filters: tuple[str, ...]) -> Destination:
        redirected = _bits(console.redirects, local_rank) & bit
        teed = _bits(console.tee, local_rank) & bit
        shown = teed or not redirected
        if console.local_ranks_filter is not None and local_rank not in console.local_ranks_filter:
            shown = False
        log_file = directory.log_file(host, attempt, rank, name)
        torchrun = None
        if console.log_dir is not None:
            torchrun = _torchrun_directory(console.log_dir, run, attempt)
        return Destination(
            log_file=log_file,
            console_fd=fd if shown else None,
            prefix=_prefix(console, role, rank, local_rank) if teed else b"",
            extra_file=torchrun / str(local_rank) / f"{_TORCHRUN_NAMES[name]}.log"
            if torchrun is not None and (redirected or teed)
            else None,
            filtered_file=(torchrun or log_file.parent) / f"filtered_{_TORCHRUN_NAMES[name]}.log" if filters else None,
            filters=filters,
        )

    return one("out", STDOUT, 1, console.stdout_filters), one("err", STDERR, 2, console.stderr_filters)


def _prefix(console: Console, role: str, rank: int, local_rank: int) -> bytes:
    template = console.line_prefix_template or "[${role_name}${local_rank}]:"
    return Template(template).safe_substitute(role_name=role, rank=rank, local_rank=local_rank).encode()


def _torchrun_directory(log_dir: str, run: str, attempt: int) -> Path:
    return Path(log_dir) / run / f"attempt_{attempt}"


def _bits(chosen: dict[int, int], local_rank: int) -> int:
    return chosen.get(local_rank, chosen.get(EVERY_LOCAL_RANK, 0))
