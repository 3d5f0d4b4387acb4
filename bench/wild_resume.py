"""Public training scripts, unmodified, under `paceline run --resume auto`: undisturbed, then killed. Writes docs/wild_resume.md.

    python bench/wild_resume.py --checkouts DIR                  every script; stop it and start it again as you like
    python bench/wild_resume.py --checkouts DIR --only dlrm      scripts whose name begins so; the page is not written

DIR, the scripts and the Python are those of wild.py. Each script runs twice under torchrun; where the two print the same losses, both runs
under paceline must print them as well, each once. There are two good outcomes: equal, and refused by a code, after which the script ends as
without resume.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wild import (
    PACELINE,
    REPOSITORY,
    RUN_SECONDS,
    TORCHRUN,
    Results,
    checkout,
    clear_away,
    conditions,
    job_directory,
    kept_at,
    printed,
    revision_of,
    started,
    wait,
    what_is_missing,
)
from wild_judge import Ran, read
from wild_scripts import SCRIPTS, Script

PAGE = REPOSITORY / "docs" / "wild_resume.md"
RESUMING = (*PACELINE, "run", "--resume", "auto")
REFUSALS = re.compile(r"\b(F0[68]|F1[1-3])\b")
RESUMED = re.compile(r"\(F01\)|\bF01\b|resumed")
BEGAN_AGAIN = re.compile(r"begins again from the beginning|no step is kept that all ranks can go on from")
KILLED = 128 + 9


@dataclass(frozen=True)
class Compared:
    """One run under paceline beside two under torchrun. `problems`: in words; empty: as it should be. `refused`: a code or nothing."""

    code: int | None
    seconds: float
    refused: str
    resumed: bool
    problems: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One word, or what is wrong."""
        if self.problems:
            return f"**{'; '.join(self.problems)}**"
        return f"refused {self.refused}" if self.refused else "equal"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True, help="directory with a checkout OWNER+NAME for each")
    parser.add_argument("--only", action="append", metavar="NAME", help="beginning of a script's name; may be repeated")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    args = parser.parse_args()

    results = Results(kept_at().with_suffix(".resume.jsonl"))
    missing = {script.name: reason for script in SCRIPTS if (reason := what_is_missing(script, args.checkouts))}
    chosen = [script for script in SCRIPTS if not args.only or script.name.startswith(tuple(args.only))]
    try:
        for script in () if args.report_only else chosen:
            if script.name in missing:
                print(f"{script.name}: skipped: {missing[script.name]}", flush=True)
                continue
            source = checkout(script, args.checkouts)
            revision = revision_of(source)
            if not results.has(script=script.name, revision=revision):
                results.append(trial(script, source, revision, results))
    except KeyboardInterrupt:
        print(f"stopped; go on with the same command ({results.path})", file=sys.stderr)
        return 130
    if not args.only:
        PAGE.write_text(page(results.all(), missing), encoding="utf-8")
        print(f"{PAGE} from {results.path}")
    return 0


def trial(script: Script, source: Path, revision: str, results: Results) -> dict[str, Any]:
    """One row of the results."""
    plain = [run(script, source, TORCHRUN, {})[0] for _ in range(2)]
    same = bool(plain[0].losses) and plain[0].losses == plain[1].losses
    at = max(2, (script.steps or 12) // 2)
    kill = {"WILD_BREAK": "killed", "WILD_RANK": str(script.ranks - 1), "WILD_STEP": str(at)}
    row: dict[str, Any] = {"script": script.name, "revision": revision, "codes": [ran.code for ran in plain]}
    row |= {"losses": len(plain[0].losses), "deterministic": same, "killed_at": at}
    for name, more in {"undisturbed": {}, "killed": kill}.items():
        ran, err = run(
            script, source, RESUMING, more, lambda directory, name=name: keep(results, script, directory, name)
        )
        row[name] = asdict(compared(plain, ran, err, bool(more)))
    return row


def keep(results: Results, script: Script, directory: Path, name: str) -> None:
    """The recording and the output: what a wrong outcome is explained from."""
    results.keep(directory, f"{script.name}-{name}")


def run(
    script: Script, source: Path, launcher: tuple[str, ...], more: dict[str, str], kept: Any = None
) -> tuple[Ran, str]:
    """One run to its end, and what it wrote to stderr. `kept`: gets its directory afterwards."""
    with tempfile.TemporaryDirectory(prefix="paceline-wild-") as base:
        directory = job_directory(script, source, Path(base))
        job = started(script, launcher, directory, more)
        try:
            wait(job, RUN_SECONDS)
            seconds = (time.time_ns() - job.started_ns) / 1e9
            out, err = printed(directory)
            return read(script, out, err, job.process.poll(), seconds), err
        finally:
            clear_away(job)
            if kept is not None:
                kept(directory)


def compared(plain: Sequence[Ran], ran: Ran, err: str, was_killed: bool) -> Compared:
    """What a run under paceline has in common with those under torchrun, two of them."""
    found = REFUSALS.search(err)
    refused = found[1] if found else ""
    resumed = RESUMED.search(err) is not None
    if was_killed and refused and not resumed:
        # It ends as it would have ended without resume. Killed before it was refused, it began again.
        began_again = BEGAN_AGAIN.search(err) is not None
        problems = (
            []
            if ran.code == KILLED or (began_again and not ends_differ(plain, ran, again=True))
            else [f"exit code {ran.code}"]
        )
    elif was_killed:
        problems = ends_differ(plain, ran, again=True)
        problems += [] if resumed else ["it neither resumed nor was refused"]
    else:
        problems = ends_differ(plain, ran) + lines_differ(plain, ran)
    return Compared(ran.code, ran.seconds, refused, resumed, tuple(problems))


def ends_differ(plain: Sequence[Ran], ran: Ran, *, again: bool = False) -> list[str]:
    """How exit code and losses differ, in words. `again`: a loss may be there again, in a line with a time in it or a progress bar."""
    found = [] if ran.code in {one.code for one in plain} else [f"exit code {ran.code}"]
    if plain[0].losses == plain[1].losses:
        wanted, made = Counter(plain[0].losses), Counter(ran.losses)
        same = wanted <= made and set(made) == set(wanted) if again else made == wanted
        found += [] if same else ["other losses"]
    elif len(ran.losses) not in {len(one.losses) for one in plain} and not (
        again and len(ran.losses) > len(plain[0].losses)
    ):
        found.append(f"{len(ran.losses)} losses for {len(plain[0].losses)}")
    return found


def lines_differ(plain: Sequence[Ran], ran: Ran) -> list[str]:
    """A kind of line that torchrun's runs lack. A script that was killed may say that it loads what it had saved itself."""
    known = {line for one in plain for line in one.shapes}
    # When a progress bar is drawn is a matter of time.
    new = [line for line in ran.shapes if line and line not in known and "it/s" not in line]
    return [f"a line that torchrun has not: {line}" for line in new][:1]


def page(rows: Sequence[dict[str, Any]], missing: dict[str, str]) -> str:
    """docs/wild_resume.md."""
    by_name = {row["script"]: row for row in rows}
    tried = [script for script in SCRIPTS if script.name in by_name]
    verdicts = {
        script.name: [Compared(**by_name[script.name][kind]).verdict for kind in ("undisturbed", "killed")]
        for script in tried
    }
    wrong = sum(any(verdict.startswith("**") for verdict in both) for both in verdicts.values())
    refused = sum(both[1].startswith("refused") for both in verdicts.values())
    resumed = sum(both[1] == "equal" for both in verdicts.values())
    lines = [
        "# Other people's scripts, killed and resumed",
        "",
        "Public training scripts, unmodified, run under torchrun twice and under `paceline run --resume auto` twice: undisturbed, and with",
        "the last rank killed in the middle of its steps. Written by `bench/wild_resume.py --checkouts DIR`; the scripts, their revisions,",
        "data and commands are those of [other people's scripts](wild.md).",
        "",
        conditions(rows),
        "",
        f"{len(tried)} scripts ran. Killed: {resumed} went on and printed what torchrun prints, {refused} were refused by a code and",
        f"ended as without resume, or began again. Neither: {wrong}.",
        "",
        "| script | ranks | losses under torchrun | undisturbed | killed after step | killed |",
        "|---|---|---|---|---|---|",
        *(table_row(script, by_name[script.name], verdicts[script.name]) for script in tried),
        "",
        "*Equal*: the exit code, each loss to the last digit that the script prints, and, undisturbed, the kinds of lines that it prints",
        "are torchrun's. A script whose two runs under torchrun differ must print as many losses. After a kill, a loss of a step that was",
        "made again may stand there twice: a line with a time in it is another one, and progress bars are drawn again. What the codes",
        "say: [codes](codes.md).",
        "",
    ]
    left = {script.name: missing.get(script.name, "not run yet") for script in SCRIPTS if script.name not in by_name}
    if left:
        lines += ["## Not run", "", *(f"* `{name}`: {reason}" for name, reason in left.items()), ""]
    return "\n".join(lines)


def table_row(script: Script, row: dict[str, Any], verdicts: Sequence[str]) -> str:
    """One line of the table."""
    losses = (
        f"{row['losses']}, equal"
        if row["deterministic"]
        else f"{row['losses']}, they differ"
        if row["losses"]
        else "none"
    )
    return f"| {script.name} | {script.ranks} | {losses} | {verdicts[0]} | {row['killed_at']} | {verdicts[1]} |"


if __name__ == "__main__":
    sys.exit(main())
