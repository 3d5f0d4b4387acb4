"""Ranks that waited in a collective until a timeout: in which, since when, who waited, and who is not in the lines. Pure.

A timeout names the rank that waited, never the one that did not come. Who that was is told where torch compared the ranks itself
(TORCH_NCCL_DESYNC_DEBUG=1) or where a rank's counters show that it never issued the collective; else it is not in a log.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from paceline.diagnosis.case import Level
from paceline.diagnosis.logs.lines import Log, Moment, RankLine, in_words, moved_back, seconds_between, stamp_in
from paceline.diagnosis.logs.patterns import WHERE_IT_IS
from paceline.diagnosis.logs.time_limits import Limit
from paceline.findings import NO_CODE, CauseFinding, Confidence
from paceline.recording.rank_sets import named_ranks

# torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, WorkNCCL::checkTimeout and synchronizeInternal. Up to 2.0 without NumelIn and NumelOut;
# up to 2.1 no [rankN]: before it; "[Rank N]" is the rank within the group.
_WATCHDOG = re.compile(r"WorkNCCL\((?P<fields>(?:[^()]|\(ms\)){1,300})\)(?: ran for (?P<ran>\d{1,12})\s+milliseconds)?")
_BEFORE_IT = re.compile(
    r"(?:\[Rank (?P<rank>\d{1,6})\] )?(?:Watchdog caught collective operation timeout: |(?P<blocking>Work ))\Z"
)
_BLOCKING = "timed out in blocking wait"
_LONGEST_BEFORE_IT = 120
_LONGEST_BEFORE_MARK = 4096
_FIELD = re.compile(r"\b(\w{1,40})(?:\(ms\))?=(\w{1,200})")
# gloo/transport/tcp/unbound_buffer.cc; it knows neither the collective nor the peer.
_GLOO = re.compile(r"Timed out waiting (?P<waited>\d{1,12})ms for (?P<what>recv|send) operation to complete")
# ProcessGroupNCCL.cpp, watchdogHandler. 2.3: "[PG 0 Rank 2] Timeout at NCCL work: 5, last enqueued NCCL work: 7, ...";
# 2.4: "[PG 0 (default_pg) Rank 2] Exception (...) detected by watchdog at work: 5, ..."; 2.5: "[PG ID 0 PG GUID 0(default_pg) Rank 2]";
# since 2.6: "failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: 7, ...".
_STATUS = re.compile(
    r"\[(?P<group>PG [^\]\n]{1,60}?) ?Rank (?P<rank>\d{1,6})\][^\n]{0,160}?work(?: sequence id)?: (?P<work>\d{1,12})"
    r"(?:[^\n]{0,40}?last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,12}))?"
)
# torch/csrc/distributed/c10d/TraceUtils.h, retrieveDesyncReport; the same since 1.11.
_ABSENT = re.compile(
    r"\[(?P<ranks>\d[\d, ]{0,4000})\] (?:finished collective #(?P<done>\d+), but didn't join collective #(?P<missed>\d+)|"
    r"are the lagging ranks[^\n]{0,60}never joined any collectives?)"
)
_MARKED = re.compile(r"\[rank(\d{1,6})\]|\[Rank (\d{1,6})\]|<std(?:err|out)>")
_MARK = re.compile(r"\[rank(\d{1,6})\]")
_WORLD_WORDS = ("world_size", "world size", "WORLD_SIZE", "nranks", "nRanks")
_WORLD = re.compile(r"(?:world[_ ]size|WORLD_SIZE|nranks|nRanks)\b['\"]?\s{0,3}[:= ]\s{0,3}(\d{1,6})\b")
# In these the calls of two ranks differ rightly: point to point, and sizes that each rank chooses.
_ONE_SIDED = frozenset({"SEND", "RECV", "RECVANY", "UNKNOWN", "", "COALESCED"})
_EQUAL_SIZES = frozenset(
    {"ALLREDUCE", "ALLREDUCE_COALESCED", "REDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"}
)
# Fewer calls than this before a one-element collective: nobody has trained yet.
_EARLY = 50
# The first calls of a group also fail where its ranks cannot reach each other at all.
_FIRST_CALLS = 2
_MOST_WAITS = 4096
_MOST_IN_LINE = 1000
_LOOKED_BACK_LINES = 400
_OF_THE_TIMEOUT = re.compile(r"ProcessGroup\w+\.cpp|NCCL (?:WARN|INFO)|frame #\d|^\s*$")

_RECORDER = (
    "TORCH_FR_DUMP_TEMP_FILE=/tmp/trace_rank_ with TORCH_NCCL_DUMP_ON_TIMEOUT=1, then paceline why --log /tmp/trace_rank_*; "
    "or paceline run ... the same script: it names the rank that the others wait for within seconds"
)
_TRANSPORT = "NCCL_DEBUG=INFO names the path between the ranks; if it works with NCCL_P2P_DISABLE=1, the path between two GPUs is broken"


@dataclass(frozen=True, slots=True)
class LoggedWait:
    """One rank that waited until a timeout."""

    line: RankLine
    """The line that reports it."""
    rank: int | None
    """The rank; None: not known."""
    operation: str
    """Name of the collective."""
    index: int | None
    """Number of the collective in its group."""
    elements: int | None
    """Number of elements."""
    seconds: float | None
    """How long it had waited."""
    at: Moment | None
    """When it gave up."""
    place: tuple[int, int]
    """Number of its file, number of its line."""
    group: str = ""
    """Name of the group; "": not known."""

    @property
    def collective(self) -> tuple[str, str, int | None]:
        return self.group, self.operation, self.index

    def what(self) -> str:
        """ "ALLREDUCE #4211"."""
        return self.operation + (f" #{self.index}" if self.index is not None else "")


@dataclass(frozen=True, slots=True)
class _Status:
    """What a watchdog reports about its group."""

    rank: int | None
    """The rank; None: not known."""
    group: str
    """Name of the group."""
    index: int
    """The call that the rank waits in."""
    enqueued: int | None
    """Calls that the rank has issued; None: not known."""


def judge_waits(found: Sequence[LoggedWait], logs: Sequence[Log], limits: Sequence[Limit] = ()) -> list[CauseFinding]:
    """What the timeouts of all ranks say together.

    Holds:   a rank is named only where a line says that it did not issue the collective that the others wait in
    """
    if not found:
        return []
    if (different := _different(found)) is not None:
        return [different]
    first = _awaited(found)
    waiting = [one for one in found if one.collective == first.collective]
    absent, why = _absent(logs, first)
    saw = [*_said(waiting), *_before(logs, first), *why]
    others = [one.what() for one in found if one.collective != first.collective and not _near(one, first)]
    if others:
        saw.append(f"and {len(others)} other {'timeout' if len(others) == 1 else 'timeouts'}: {', '.join(others[:3])}")
    ranks = {one.rank for one in waiting if one.rank is not None}
    size = _world_size(logs)
    everyone = size is not None and size > 1 and set(range(size)) <= ranks
    if not absent and not everyone:
        known = set(range(size)) if size is not None else _marked(logs)
        told = {status.rank for log in logs for status in _statuses(log) if status.index == first.index}
        saw += _who_is_not_here(known - told, ranks)
    saw += _consequence(first, limits)
    return [_finding(first, absent, everyone, tuple(saw))]


def _awaited(found: Sequence[LoggedWait]) -> LoggedWait:
    """The first timeout; of the calls that this rank had issued behind one another, the earliest: the others wait in line."""
    first = found[0]
    line = [one for one in found if (one.rank, one.group) == (first.rank, first.group) and _near(one, first)]
    return min(line, key=lambda one: one.index or 0, default=first)


def _near(one: LoggedWait, other: LoggedWait) -> bool:
    return one.index is not None and other.index is not None and abs(one.index - other.index) < _MOST_IN_LINE


def waits(logs: Sequence[Log]) -> list[LoggedWait]:
    """Every rank and collective that timed out, once each, in the order of the lines."""
    kept: dict[tuple[int | None, str, str, int | None], LoggedWait] = {}
    for place, log in enumerate(logs):
        if "WorkNCCL(" not in log.text and "Timed out waiting" not in log.text:
            continue
        groups = {(status.rank, status.index): status.group for status in _statuses(log)}
        for match in islice(_WATCHDOG.finditer(log.text), _MOST_WAITS):
            before = _BEFORE_IT.search(log.text[max(match.start() - _LONGEST_BEFORE_IT, 0) : match.start()])
            if before is None or (before["blocking"] and not log.text.startswith(_BLOCKING, match.end() + 1)):
                continue
            wait = _of_nccl(log, place, match, _number(before["rank"]), groups)
            kept.setdefault((wait.rank, *wait.collective), wait)
        for match in _GLOO.finditer(log.text):
            line = log.line_at(match.start())
            seconds = int(match["waited"]) / 1000
            wait = LoggedWait(
                line, line.rank, f"gloo's {match['what']}", None, None, seconds, _stamp(log, line), (place, line.number)
            )
            kept.setdefault((wait.rank, *wait.collective), wait)
    return _with_groups(sorted(kept.values(), key=lambda wait: wait.place))


def _with_groups(found: Sequence[LoggedWait]) -> list[LoggedWait]:
    """A rank that did not come to tell its group is of the one in which others waited in the same call, where that is one."""
    groups: dict[tuple[str, int | None], set[str]] = {}
    for wait in found:
        if wait.group:
            groups.setdefault((wait.operation, wait.index), set()).add(wait.group)
    return [
        replace(wait, group=next(iter(known)))
        if not wait.group and len(known := groups.get((wait.operation, wait.index), set())) == 1
        else wait
        for wait in found
    ]


def _of_nccl(
    log: Log, place: int, match: re.Match[str], in_group: int | None, groups: dict[tuple[int | None, int], str]
) -> LoggedWait:
    fields = dict(_FIELD.findall(match["fields"].replace("\n", "")))
    line = log.line_at(match.start())
    index, elements = _number(fields.get("SeqNum")), _number(fields.get("NumelIn"))
    waited = _number(match["ran"] or fields.get("Timeout"))
    rank = _rank_of(log, match.start(), in_group, line)
    return LoggedWait(
        line,
        rank,
        fields.get("OpType", "a collective"),
        index,
        elements,
        waited / 1000 if waited is not None else None,
        _stamp(log, line),
        (place, line.number),
        groups.get((rank, index), "") if index is not None else "",
    )


def _rank_of(log: Log, offset: int, in_group: int | None, line: RankLine) -> int | None:
    """Of several ranks that wrote into one line, the one whose mark stands nearest before the message."""
    start = max(offset - _LONGEST_BEFORE_MARK, 0)
    marks = _MARK.findall(log.text[max(start, log.text.rfind("\n", start, offset) + 1) : offset])
    if marks:
        return int(marks[-1])
    if in_group is not None and not _MARKED.match(line.whole):
        # A line of another rank may have been cut off where this message begins.
        own = line.rank if line.whole.count("[Rank ") < 2 else None
        return own if own is not None else in_group
    return line.rank


def _statuses(log: Log) -> Iterator[_Status]:
    for match in _STATUS.finditer(log.text):
        line = log.line_at(match.start())
        rank = line.rank if line.rank is not None else int(match["rank"])
        enqueued = _number(match["enqueued"])
        yield _Status(rank, match["group"].strip(), int(match["work"]), enqueued)


def _stamp(log: Log, line: RankLine) -> Moment | None:
    return stamp_in(line.whole) or log.moment_before(line.number)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


# -------------------------------------------------------------------------------------------------------------- judging


def _finding(first: LoggedWait, absent: Sequence[int], everyone: bool, saw: tuple[str, ...]) -> CauseFinding:
    if absent:
        return CauseFinding(
            code="N01",
            title="some ranks did not come to the collective",
            level=Level.STALL,
            ranks=tuple(absent),
            # Who is behind is told; why is not in a log.
            confidence=Confidence.UNCLEAR,
            saw=saw,
            next=("py-spy dump --nonblocking --pid PID, on these ranks while it hangs", _RECORDER),
        )
    if first.elements == 1 and first.index is not None and _FIRST_CALLS < first.index <= _EARLY and not everyone:
        return CauseFinding(
            code="N04",
            title="one rank works alone while the others wait",
            level=Level.WAITING,
            confidence=Confidence.LIKELY,
            saw=(
                *saw,
                f"a collective of one element, the {first.index}th of its group: a barrier before training has begun",
            ),
            next=(
                "py-spy dump --nonblocking --pid PID, on rank 0 while the others wait: tokenising, downloading, saving",
                "prepare the data before the job; a longer timeout only hides it",
            ),
        )
    begins = first.index is not None and 0 <= first.index <= _FIRST_CALLS
    title = "ranks waited in a collective for another rank"
    if everyone:
        title = "every rank is in the same collective, and it does not finish"
    elif begins:
        title = "the first collective did not finish"
    return CauseFinding(
        code=NO_CODE,
        title=title,
        level=Level.STALL,
        confidence=Confidence.UNCLEAR,
        saw=saw,
        next=(*((_TRANSPORT, _RECORDER) if everyone or begins else (_RECORDER, WHERE_IT_IS)), "paceline help C13"),
    )


def _said(waiting: Sequence[LoggedWait]) -> Iterator[str]:
    """ "ranks 0,2 waited 30 min in ALLREDUCE #4211 of 1,000 elements, from 11:00:02 until 11:30:02", and the line that says so."""
    first = waiting[0]
    ranks = {wait.rank for wait in waiting if wait.rank is not None}
    who = named_ranks(ranks) if ranks else "a rank"
    size = f" of {first.elements:,} elements" if first.elements is not None and first.elements > 1 else ""
    long = f" {in_words(first.seconds)}" if first.seconds is not None else ""
    when = ""
    if first.at is not None and first.seconds is not None:
        when = f", from {moved_back(first.at, first.seconds)} until {moved_back(first.at, 0)}"
    yield f"{who} waited{long} in {first.what()}{size}{when}"
    yield first.line.shown()


def _before(logs: Sequence[Log], first: LoggedWait) -> Iterator[str]:
    """What the job wrote last before the timeout, and not about it."""
    log, last = logs[first.place[0]], first.line.number - 1
    for number in range(last, max(last - _LOOKED_BACK_LINES, 0), -1):
        if not _OF_THE_TIMEOUT.search(log.raw(number)):
            yield f"the last line before it: {log.line(number).shown(120)}"
            return


def _absent(logs: Sequence[Log], first: LoggedWait) -> tuple[tuple[int, ...], list[str]]:
    """Ranks that are told to have stayed away from the awaited collective, and by what."""
    for log in logs:
        for match in _ABSENT.finditer(log.text):
            named = sorted({int(rank) for rank in re.findall(r"\d+", match["ranks"])})
            done = match["done"]
            said = (
                f"finished collective {done} and did not join {match['missed']}"
                if done
                else "joined no collective at all"
            )
            return tuple(named), [f"torch compared the ranks: {named_ranks(named)} {said}"]
    if first.index is None:
        return (), []
    counts = {
        status.rank: status.enqueued
        for log in logs
        for status in _of_all_kinds(log)
        if status.rank is not None and status.enqueued is not None and (not first.group or status.group == first.group)
    }
    behind = {rank: count for rank, count in sorted(counts.items()) if count < first.index}
    if not behind or len(behind) == len(counts):
        return (), []
    return tuple(behind), [f"rank {rank} had issued {count} collectives" for rank, count in [*behind.items()][:4]]


_COUNTS = re.compile(
    r"\[(?P<group>PG [^\]\n]{1,60}?) ?Rank (?P<rank>\d{1,6})\][^\n]{0,400}?[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,12})"
)


def _of_all_kinds(log: Log) -> Iterator[_Status]:
    """Counters also of ranks whose own watchdog found nothing: they dump them when another rank asks."""
    for match in _COUNTS.finditer(log.text):
        line = log.line_at(match.start())
        rank = line.rank if line.rank is not None else int(match["rank"])
        yield _Status(rank, match["group"].strip(), 0, int(match["enqueued"]))


def _different(found: Sequence[LoggedWait]) -> CauseFinding | None:
    """Two ranks that timed out at the same place of one group's order in different calls."""
    for one in found:
        for other in found:
            if one.index is None or one.index != other.index or one.rank == other.rank or one.group != other.group:
                continue
            if {one.operation, other.operation} & _ONE_SIDED or not _differ(one, other):
                continue
            same = one.operation == other.operation
            ranks = tuple(sorted(rank for rank in (one.rank, other.rank) if rank is not None))
            return CauseFinding(
                code="M02" if same else "M01",
                title="shapes differ between ranks" if same else "ranks called different collectives",
                level=Level.DIVERGENCE,
                ranks=ranks,
                # Before torch 2.3 the lines do not say of which group they are: two groups count for themselves.
                confidence=Confidence.LIKELY if one.group else Confidence.UNCLEAR,
                saw=(one.line.shown(), other.line.shown()),
                next=("paceline run ... the same script: it compares every call and shows both call sites",),
            )
    return None


def _differ(one: LoggedWait, other: LoggedWait) -> bool:
    return one.operation != other.operation or (
        one.operation in _EQUAL_SIZES and one.elements != other.elements and None not in (one.elements, other.elements)
    )


def _who_is_not_here(known: Collection[int], waited: Collection[int]) -> Iterator[str]:
    """What these lines leave open, and which ranks wrote no timeout of their own."""
    silent = set(known) - set(waited)
    yield "the rank that did not come is not in these lines"
    if silent and waited:
        yield f"no timeout was written by {named_ranks(silent)}: look there first"


def _world_size(logs: Sequence[Log]) -> int | None:
    spelled = (log.text for log in logs if any(word in log.text for word in _WORLD_WORDS))
    return max((int(match[1]) for text in spelled for match in _WORLD.finditer(text)), default=None)


def _marked(logs: Sequence[Log]) -> set[int]:
    named = {int(match[1]) for log in logs for match in _MARK.finditer(log.text)}
    return named | {log.rank for log in logs if log.rank is not None}


def _consequence(first: LoggedWait, limits: Sequence[Limit]) -> Iterator[str]:
    """The platform's limit, where it came after the wait had begun."""
    for limit in limits:
        gap = seconds_between(first.at, limit.at) if first.at is not None and limit.at is not None else None
        same_file = limit.place[0] == first.place[0]
        # Within a file the order decides: its stamps may be of two clocks.
        if limit.place < first.place if same_file else (gap is not None and gap < 0):
            continue
        later = f" {in_words(gap)} later" if gap is not None and gap >= 0 else " afterwards"
        yield f"the job's time limit came{later}, a consequence: {limit.line.shown(120)}"
        return


def follows(limit: Limit, found: Sequence[LoggedWait]) -> bool:
    """Whether a limit came after a rank had begun to wait."""
    return bool(found) and any(_consequence(found[0], [limit]))
