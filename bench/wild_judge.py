"""What a public script's run under paceline must share with its runs under torchrun, and what must be said of a broken one. Pure."""

import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from wild_scripts import Script

# A machine that is really busy is told so, and may be; there ranks do wait for each other for seconds.
TRUE_OF_A_BUSY_MACHINE = frozenset({"S03", "S04", "waiting"})
STEPS_FOR_A_RATE = 200
ALONE = ("asleep", "stopped", "killed", "raises")
LOADER = ("fewer_batches", "loader_stuck")
EXPECTED = {
    "asleep": {"N01"},
    "endless_loop": {"N06"},
    "stopped": {"N02"},
    "killed": {"C04"},
    "leaves": {"C06"},
    "raises": {"C01"},
    "extra_collective": {"M01", "M02", "M06"},
    "fewer_batches": {"M05"},
    "loader_stuck": {"N01", "N03"},
    "slow": {"S01"},
}
# Of two ranks that disagree nobody can tell which one is wrong.
BETWEEN_TWO = frozenset({"extra_collective"})


@dataclass(frozen=True)
class Ran:
    """One run of a script that nobody broke. `steps`, `step_ms`: what paceline counted, None under torchrun; `findings`: codes.
    `times`: where the time went, in paceline's words.
    """

    code: int | None
    seconds: float
    losses: tuple[str, ...]
    shapes: tuple[str, ...]
    own_ms: float | None
    steps: int | None = None
    step_ms: float | None = None
    findings: tuple[str, ...] = ()
    times: str = ""


@dataclass(frozen=True)
class Healthy:
    """Two runs under torchrun and one under paceline, compared. None: the script does not show it."""

    script: str
    kind: str
    revision: str
    codes: tuple[int | None, ...]
    works: bool
    same_code: bool
    deterministic: bool | None
    same_losses: bool | None
    added: tuple[str, ...]
    steps: int | None
    steps_right: bool | None
    own_ms: tuple[float | None, ...]
    step_ms: float | None
    findings: tuple[str, ...]
    false_findings: tuple[str, ...]
    seconds: tuple[float, ...]
    times: str = ""

    @property
    def right(self) -> bool:
        return self.same_code and self.same_losses is not False and not self.added and self.steps_right is not False


@dataclass(frozen=True)
class Broken:
    """One run that was broken on purpose, and what was said first."""

    script: str
    kind: str
    revision: str
    what: str
    rank: int
    step: int
    codes: tuple[str, ...]
    ranks: tuple[int, ...]
    confidence: str
    cause_right: bool
    rank_right: bool
    exit_code: int | None
    problem: str
    seconds: float


def read(script: Script, out: str, err: str, code: int | None, seconds: float) -> Ran:
    """What a run printed, without what differs from run to run anyway. The order of ranks does."""
    own = [float(found) for found in re.findall(script.milliseconds, out + err)] if script.milliseconds else []
    done = next((line for line in reversed(err.splitlines()) if re.match(r"(done|failed)\s", line)), "")
    times = re.search(r"^\s+time\s+(.*)$", err, re.MULTILINE)
    steps = re.search(r"(\d[\d,]*) steps?\b", done)
    pace = re.search(r"([\d.,]+) (ms|s)/step", done)
    return Ran(
        code=code,
        seconds=round(seconds, 1),
        losses=tuple(sorted(re.findall(script.loss, without_bars(out + err)))) if script.loss else (),
        shapes=tuple(sorted({shape(line) for line in out.splitlines()})),
        own_ms=round(sorted(own)[len(own) // 2], 1) if own else None,
        steps=int(steps[1].replace(",", "")) if steps else None,
        step_ms=float(pace[1].replace(",", "")) * (1000 if pace[2] == "s" else 1) if pace else None,
        times=times[1] if times else "",
    )


def without_bars(text: str) -> str:
    """The text without progress bars: how often one is drawn is a matter of time."""
    return "\n".join(piece for piece in re.split(r"[\r\n]", text) if not re.search(r"it/s|s/it", piece))


def shape(line: str) -> str:
    """A line without its numbers and without what was drawn at random."""
    return re.sub(r"[-+]?\d[\d.,:e%+-]*", "#", line).strip()


def compare(script: Script, revision: str, plain: Sequence[Ran], watched: Ran) -> Healthy:
    """Losses count where two runs without paceline agree; the shape of a line where either of them has it."""
    deterministic = plain[0].losses == plain[1].losses if plain[0].losses else None
    known = {line for run in plain for line in run.shapes}
    return Healthy(
        script=script.name,
        kind="healthy",
        revision=revision,
        codes=tuple(run.code for run in (*plain, watched)),
        works=plain[0].code == 0,
        same_code=watched.code in {run.code for run in plain},
        deterministic=deterministic,
        same_losses=watched.losses == plain[0].losses if deterministic else None,
        added=tuple(line for line in watched.shapes if line and line not in known),
        steps=watched.steps,
        steps_right=None if script.steps is None or watched.code else watched.steps == script.steps,
        own_ms=tuple(run.own_ms for run in (*plain, watched)),
        step_ms=watched.step_ms,
        findings=watched.findings,
        # A script that fails by itself is to be told so, and one that waits for its data too.
        false_findings=tuple(code for code in watched.findings if not watched.code and code not in true_of(script)),
        seconds=tuple(run.seconds for run in (*plain, watched)),
        times=watched.times,
    )


def true_of(script: Script) -> frozenset[str]:
    """Findings that are no mistake about this script on this machine."""
    return TRUE_OF_A_BUSY_MACHINE | frozenset(script.true_findings)


def breaks(script: Script, seed: int, count: int = 2) -> list[tuple[str, int, int]]:
    """Which breaks a script gets: what, on which rank, at which step. The same seed draws the same."""
    if not script.breakable:
        return []
    draw = random.Random(f"{seed} {script.name}")
    if not script.exchanges:
        possible = list(ALONE)
    else:
        possible = [what for what in EXPECTED if script.has_loader or what not in LOADER]
        if (script.steps or 0) < STEPS_FOR_A_RATE:
            possible.remove("slow")
    steps = script.steps or 12
    return [(what, draw.randrange(script.ranks), max(2, min(steps // 3, 12))) for what in draw.sample(possible, count)]


def said_right(what: str, rank: int, world_size: int, finding: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the first finding has the cause, and the rank."""
    ranks = frozenset(finding.get("ranks") or ())
    both = what in BETWEEN_TWO and world_size == 2 and ranks == {0, 1}
    return finding.get("code") in EXPECTED[what], both or ranks == {rank}


def page(scripts: Sequence[Script], rows: Sequence[dict[str, Any]], missing: dict[str, str], conditions: str) -> str:
    """docs/wild.md."""
    healthy = {row["script"]: row for row in rows if row["kind"] == "healthy"}
    broken: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["kind"] == "broken":
            broken.setdefault(row["script"], []).append(row)
    tried = [script for script in scripts if script.name in healthy]
    all_broken = [row for script in scripts for row in broken.get(script.name, [])]
    both = sum(row["cause_right"] and row["rank_right"] for row in all_broken)
    right = sum(healthy_of(healthy[script.name]).right for script in tried)
    quiet = sum(not healthy[script.name]["false_findings"] for script in tried)
    lines = [
        "# Other people's scripts",
        "",
        "Public training scripts, unmodified, run under torchrun twice and under `paceline run` once, then broken at run time. Written by",
        "`bench/wild.py --checkouts DIR`, where DIR has a checkout of each repository as `OWNER+NAME`; none of their code is here.",
        "Data of the right shapes is made on the spot.",
        "",
        f"{conditions}",
        "",
        f"* {len(tried)} scripts of {len({script.repository for script in tried})} repositories ran; exit code, losses, stdout and steps "
        f"as they should be in {right}; no finding in {quiet}.",
        f"* {len(all_broken)} broken runs: rank and cause right in {both}.",
        "",
        "| script | repository, revision | exit code | losses | added to stdout | steps | ms/step: own, paceline | findings |",
        "|---|---|---|---|---|---|---|---|",
        *(healthy_row(script, healthy[script.name]) for script in tried),
        "",
        "*Losses*: equal wherever the two runs under torchrun are equal to each other. *Steps*: what paceline counted; *as known* where",
        "the script and its data say how many optimizer steps a rank makes. *Findings*: S03, S04 and *waiting* say that the machine is",
        "busy, S05 that a script waits for its data, where it is known to; in bold what is a mistake.",
        "",
        *(f"* `{script.name}`: {script.note}" for script in tried if script.note),
        "",
        "## Broken on purpose",
        "",
        "Each script is broken in two of ten ways, drawn by a seed: `bench/wild_site/sitecustomize.py`.",
        "",
        "| script | break | rank, step | said first | rank | cause |",
        "|---|---|---|---|---|---|",
        *(broken_row(row) for row in all_broken),
        "",
        "## Commands",
        "",
        *(f"* `{script.name}`: in `{place(script)}`: `{script.command}`" for script in tried),
        "",
    ]
    left = {script.name: missing.get(script.name, "not run yet") for script in scripts if script.name not in healthy}
    if left:
        lines += ["## Not run", "", *(f"* `{name}`: {reason}" for name, reason in left.items()), ""]
    return "\n".join(lines)


def healthy_of(row: dict[str, Any]) -> Healthy:
    """A row of the results, whatever else stands in it."""
    return Healthy(**{each.name: row[each.name] for each in fields(Healthy) if each.name in row})


def healthy_row(script: Script, row: dict[str, Any]) -> str:
    """One line of the first table."""
    code = f"{row['codes'][-1]}" if row["same_code"] else f"**{row['codes'][-1]} for {row['codes'][0]}**"
    losses = {True: "equal", False: "**differ**", None: "not compared"}[row["same_losses"]]
    if row["deterministic"] is False:
        losses = "torchrun's own differ"
    steps = {
        True: f"{row['steps']}, as known",
        False: f"**{row['steps']} for {script.steps}**",
        None: str(row["steps"]),
    }
    own = row["own_ms"][-1]
    pace = f"{own if own is not None else '-'}, {row['step_ms'] if row['step_ms'] is not None else '-'}"
    added = f"**{len(row['added'])} lines**" if row["added"] else "nothing"
    cells = (
        *(script.name, f"{script.repository} {row['revision'][:10]}", code, losses, added),
        *(steps[row["steps_right"]], pace, told(row)),
    )
    return f"| {' | '.join(cells)} |"


def place(script: Script) -> str:
    """Where the command is run."""
    return script.repository if script.folder == "." else f"{script.repository}/{script.folder.strip()}"


def told(row: dict[str, Any]) -> str:
    """The findings about a run that nobody broke; a mistake stands out."""
    return ", ".join(f"**{code}**" if code in row["false_findings"] else code for code in row["findings"]) or "none"


def broken_row(row: dict[str, Any]) -> str:
    """One line of the second table."""
    said = (
        f"{row['codes'][0]} ({row['confidence']})"
        if row["codes"]
        else f"nothing{': ' * bool(row['problem'])}{row['problem']}"
    )
    marks = ["right" if row[name] else "**wrong**" for name in ("rank_right", "cause_right")]
    return f"| {row['script']} | {row['what']} | {row['rank']}, {row['step']} | {said} | {' | '.join(marks)} |"


def plain(outcome: Healthy | Broken) -> dict[str, Any]:
    """As one line of the results."""
    return asdict(outcome)
