"""Public training scripts, unmodified, under torchrun and under paceline; then broken at run time. Writes docs/wild.md.

    python bench/wild.py --checkouts DIR                 everything; stop it and start it again as you like
    python bench/wild.py --checkouts DIR --only dlrm     scripts whose name begins so
    python bench/wild.py --checkouts DIR --report-only   only the page, from what is there

DIR has a checkout of each repository, named OWNER+NAME; the scripts are in wild_scripts.py. The Python that runs this runs the
scripts: wild_requirements.txt has what they need. A script whose checkout or whose modules are missing is skipped, and named. Results
are kept outside of the repository, by the state of src/ and the version of torch; what is there is not run again.
"""

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
BENCH = REPOSITORY / "bench"
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("bench", "tests/faults", "tests/torches")]

from catalogue import Fault  # noqa: E402
from harness import Watched, clear_away, start, stop, why  # noqa: E402
from scoring import Answer, is_judgement, spoken  # noqa: E402
from wild_judge import EXPECTED, Broken, Ran, breaks, compare, page, plain, read, said_right  # noqa: E402
from wild_scripts import SCRIPTS, Script  # noqa: E402

PACELINE = (sys.executable, "-m", "paceline")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
RUN_SECONDS = 900.0
JUDGE_SECONDS = 300.0
# A finding may be followed by a better one when the snapshots of the suspects are in.
SETTLE_SECONDS = 3.0
NOTHING_IS_DOWNLOADED = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "agg",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True, help="directory with a checkout OWNER+NAME for each")
    parser.add_argument("--only", action="append", metavar="NAME", help="beginning of a script's name; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="draws the breaks (default 1)")
    parser.add_argument("--skip-breaks", action="store_true")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--results", type=Path, help="JSONL file to go on with")
    parser.add_argument("--page", type=Path, default=REPOSITORY / "docs" / "wild.md", help="page to write")
    args = parser.parse_args()

    results = Results(args.results or kept_at())
    missing = {script.name: reason for script in SCRIPTS if (reason := what_is_missing(script, args.checkouts))}
    chosen = [script for script in SCRIPTS if not args.only or script.name.startswith(tuple(args.only))]
    if not args.report_only:
        try:
            for script in chosen:
                if script.name in missing:
                    print(f"{script.name}: skipped: {missing[script.name]}", flush=True)
                else:
                    trials(script, args, results)
        except KeyboardInterrupt:
            print(f"stopped; go on with the same command ({results.path})", file=sys.stderr)
            return 130
    args.page.write_text(page(SCRIPTS, results.all(), missing, conditions(results.all())), encoding="utf-8")
    print(f"{args.page} from {results.path}")
    return 0


class Results:
    """Outcomes in a file, one JSON line each; a line that was cut off is as if it had not come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[dict[str, Any]]:
        rows = []
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []:
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
        return rows

    def append(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "sources": sources(), "load": round(os.getloadavg()[1], 1)}) + "\n")
        print(json.dumps(row), flush=True)

    def keep(self, directory: Path, name: str) -> None:
        """The recording of a run, for whoever wants to know why the answer was wrong."""
        kept = self.path.with_suffix("") / name
        shutil.rmtree(kept, ignore_errors=True)
        for part in (".paceline", "out.txt", "err.txt"):
            if (directory / part).is_dir():
                shutil.copytree(directory / part, kept / part, symlinks=True, ignore_dangling_symlinks=True)
            elif (directory / part).exists():
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copy(directory / part, kept / part)

    def has(self, **wanted: Any) -> bool:
        return any(all(row.get(name) == value for name, value in wanted.items()) for row in self.all())


@cache
def sources() -> str:
    """A name for this state of src/."""
    digest = hashlib.sha256()
    for file in sorted((REPOSITORY / "src").rglob("*.py")):
        digest.update(str(file.relative_to(REPOSITORY)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def kept_at() -> Path:
    """Where results of this state of src/ and this torch are."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "paceline-wild" / f"{sources()}-torch-{importlib.metadata.version('torch')}.jsonl"


def conditions(rows: list[dict[str, Any]]) -> str:
    """What a reader has to know about the numbers."""
    loads = [row["load"] for row in rows if row.get("load") is not None]
    states = ", ".join(sorted({row["sources"] for row in rows if row.get("sources")}))
    busy = f"load {min(loads):.0f} to {max(loads):.0f}" if loads else "load not noted"
    return (
        f"torch {importlib.metadata.version('torch')}, Python {platform.python_version()}, {os.cpu_count()} CPU cores, {busy}: where that "
        f"is more than the cores, read no time from this page. Sources {states or 'unknown'} (a hash of src/)."
    )


def checkout(script: Script, checkouts: Path) -> Path:
    return checkouts / script.repository.replace("/", "+")


def what_is_missing(script: Script, checkouts: Path) -> str:
    """Why a script cannot run here; empty where it can."""
    if not (checkout(script, checkouts) / script.folder).is_dir():
        return f"no checkout of {script.repository}"
    absent = [name for name in script.needs if importlib.util.find_spec(name) is None]
    return f"needs {', '.join(absent)}" if absent else ""


def revision_of(directory: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=directory, capture_output=True, text=True, check=False
    ).stdout.strip()


def trials(script: Script, args: argparse.Namespace, results: Results) -> None:
    """What is not there yet of one script."""
    source = checkout(script, args.checkouts)
    revision = revision_of(source)
    if not results.has(script=script.name, kind="healthy", revision=revision):
        runs = [healthy(script, source, TORCHRUN, results) for _ in range(2)]
        results.append(plain(compare(script, revision, runs, healthy(script, source, (*PACELINE, "run"), results))))
    if args.skip_breaks or not results.has(script=script.name, kind="healthy", revision=revision, works=True):
        return
    for what, rank, step in breaks(script, args.seed):
        if not results.has(script=script.name, kind="broken", revision=revision, what=what, rank=rank, step=step):
            results.append(plain(broken(script, source, revision, (what, rank, step), results)))


def job_directory(script: Script, source: Path, base: Path) -> Path:
    """A copy of the script's folder with its data, three levels deep: some scripts look for data above themselves."""
    folder = source / script.folder
    directory = base / "one" / "two" / (folder.name if script.folder != "." else script.name)
    shutil.copytree(folder, directory, ignore=shutil.ignore_patterns(".git", ".paceline"), symlinks=True)
    for make in script.data:
        make(directory)
    return directory


def started(script: Script, launcher: tuple[str, ...], directory: Path, more: dict[str, str]) -> Watched:
    paths = [*(str(directory / path) for path in script.paths), *([str(BENCH / "wild_site")] if more else [])]
    environment = {
        **NOTHING_IS_DOWNLOADED,
        **script.environment,
        **more,
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HOME": str(directory / "hub"),
    }
    return start(
        [*launcher, "--nproc-per-node", str(script.ranks), *script.argv], directory, environment, Path(sys.executable)
    )


def healthy(script: Script, source: Path, launcher: tuple[str, ...], results: Results) -> Ran:
    """One run to its end. The recording of one with a finding is kept."""
    with tempfile.TemporaryDirectory(prefix="paceline-wild-") as base:
        directory = job_directory(script, source, Path(base))
        job = started(script, launcher, directory, {})
        try:
            wait(job, RUN_SECONDS)
            seconds = (time.time_ns() - job.started_ns) / 1e9
            job.poll()
            ran = read(script, *printed(directory), job.process.poll(), seconds)
            if launcher is TORCHRUN:
                return ran
            answer, problem = asked(job)
            alarms, notices = spoken(job.events)
        finally:
            clear_away(job)
        codes = [str(finding.get("code") or finding.get("level")) for finding in (answer.findings if answer else ())]
        live = [text.split()[0] for text in (*alarms, *notices)]
        if codes or live or problem:
            results.keep(directory, f"{script.name}-healthy")
        return Ran(**{**vars(ran), "findings": tuple(sorted({*codes, *live, *([problem] if problem else [])}))})


def printed(directory: Path) -> tuple[str, str]:
    return (directory / "out.txt").read_text(errors="replace"), (directory / "err.txt").read_text(errors="replace")


def wait(job: Watched, seconds: float) -> None:
    try:
        job.process.wait(seconds)
    except subprocess.TimeoutExpired:
        print(f"not over after {seconds:.0f} s: {job.directory}", file=sys.stderr)


def broken(script: Script, source: Path, revision: str, drawn: tuple[str, int, int], results: Results) -> Broken:
    """One run in which a rank is broken, until it is judged. The recording of one that was judged wrong is kept."""
    what, rank, step = drawn
    with tempfile.TemporaryDirectory(prefix="paceline-wild-") as base:
        directory = job_directory(script, source, Path(base))
        more = {"WILD_BREAK": what, "WILD_RANK": str(rank), "WILD_STEP": str(step)}
        job = started(script, (*PACELINE, "run"), directory, more)
        try:
            judged(job, what)
            exit_code = job.process.poll()
            answer, problem = asked(job)
            findings = answer.findings if answer else ()
            problem = problem or ("" if job.injected_ns else "the rank was never broken")
            stop(job)
        finally:
            clear_away(job)
        first = findings[0] if findings else {}
        cause_right, rank_right = said_right(what, rank, script.ranks, first)
        if not (cause_right and rank_right):
            results.keep(directory, f"{script.name}-{what}")
        return Broken(
            script=script.name,
            kind="broken",
            revision=revision,
            what=what,
            rank=rank,
            step=step,
            codes=tuple(str(finding.get("code")) for finding in findings),
            ranks=tuple(first.get("ranks") or ()),
            confidence=str(first.get("confidence") or ""),
            cause_right=cause_right,
            rank_right=rank_right,
            exit_code=exit_code,
            problem=problem,
            seconds=round((time.time_ns() - job.started_ns) / 1e9, 1),
        )


def judged(job: Watched, what: str) -> None:
    """Wait for a cause after the break, the job's own end, or the end of the budget."""
    fault = Fault(name=what, code="wild", what=what, script=Path(what), expected=frozenset(EXPECTED[what]))
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline and job.process.poll() is None:
        job.poll()
        if job.injected_ns is not None:
            since = job.injected_ns
            deadline = min(deadline, time.monotonic() + JUDGE_SECONDS - (time.time_ns() - since) / 1e9)
            if any(is_final(event, fault) and int(event["t_ns"]) >= since for event in job.events):
                deadline = min(deadline, time.monotonic() + SETTLE_SECONDS)
        time.sleep(0.2)
    job.poll()


def asked(job: Watched) -> tuple[Answer | None, str]:
    """What `paceline why` says; on a machine that is too busy to answer in time, that it did not."""
    try:
        return why(job)
    except subprocess.TimeoutExpired as late:
        return None, f"why gave no answer within {late.timeout:.0f} s"


def is_final(event: dict[str, Any], fault: Fault) -> bool:
    """A stall whose cause is unclear may get one when more is known, or may dissolve."""
    return is_judgement(event, fault) and event["finding"].get("code") != "unclear"


if __name__ == "__main__":
    sys.exit(main())
