"""Flight-recorder dumps of several ranks, compared: who called something else, who did not come, whose device is behind. Pure.

Judged by what the entries say is not over. The recorders' counters stand in only where a rank has no entry of a group: NCCL's count
sends in between, and nccl2's counts from 0.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.diagnosis.case import Level
from paceline.diagnosis.hang.wait_chains import Chains, Delay, Delayed, GroupProgress, follow_chains
from paceline.diagnosis.logs.flight_recorder_dumps import DumpedCall, DumpedGroup, DumpedMessage, RecorderDump
from paceline.findings import NO_CODE, CauseFinding, Confidence
from paceline.recording.rank_sets import named_ranks

_WHERE = "py-spy dump --nonblocking --pid PID, on these ranks while the job hangs: where they are instead"
_DEVICES = "on each host: dmesg | grep -i xid; nvidia-smi -q -d POWER,UTILIZATION,ECC; nvidia-smi nvlink -e"
_NOT_COME = "some ranks did not come to a collective"
_TITLES = {
    "M01": "ranks called different collectives",
    "M02": "shapes differ between ranks",
    "M03": "dtypes differ between ranks",
}
# The recorder's word for a collective that NCCL counts from 0, among all operations of the group.
_COUNTS_FROM_ZERO = "nccl2"
# Of one collective under two names, the name that is kept.
_SAME = {"all_to_all_single": "all_to_all", "allgather": "all_gather", "allreduce": "all_reduce"}
_MOST_LINES = 4

Group = tuple[str, str]
"""Recorder and name."""
Message = tuple[Group, int, int]
"""A send: group, sender, receiver."""
Place = Group | Message
"""Where a rank may wait."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One group of one recorder, as all dumps have it."""

    group: Group
    """Its recorder and name."""
    at: Mapping[int, DumpedGroup]
    """Rank -> what its dump says."""

    @property
    def title(self) -> str:
        return next(iter(self.at.values())).title

    @property
    def ranks(self) -> tuple[int, ...]:
        return next((group.ranks for group in self.at.values() if group.ranks), ())


def judge_dumps(dumps: Sequence[RecorderDump]) -> list[CauseFinding]:
    """Whether the ranks called different things at the same place, else who is at the end of the chains of those who wait.

    Holds:   dumps in which all is over give no finding; the order of the dumps changes nothing
    """
    known = [dump for dump in dumps if dump.rank is not None]
    seen = _groups(known)
    different = [finding for group in seen if (finding := _different_calls(group)) is not None]
    return different or _who_waits(seen, known)


def _groups(dumps: Sequence[RecorderDump]) -> list[_Seen]:
    """Every group that has an entry in some dump, with what each rank's dump says about it; without entries, by its counters alone."""
    own: dict[Group, dict[int, DumpedGroup]] = {}
    quiet: dict[str, dict[int, DumpedGroup]] = {}
    for dump in dumps:
        for group in dump.groups:
            assert dump.rank is not None
            if group.recorder:
                own.setdefault((group.recorder, group.name), {})[dump.rank] = group
            else:
                quiet.setdefault(group.name, {})[dump.rank] = group
    for (_, name), at in own.items():
        for rank, group in quiet.get(name, {}).items():
            at.setdefault(rank, group)
    without = {("", name): at for name, at in quiet.items() if name not in {name for _, name in own}}
    return [_Seen(group, dict(sorted(at.items()))) for group, at in (own | without).items()]


# -------------------------------------------------------------------------------------------------------- who waits for whom


def _who_waits(seen: Sequence[_Seen], dumps: Sequence[RecorderDump]) -> list[CauseFinding]:
    cut = frozenset(dump.rank for dump in dumps if dump.note and dump.rank is not None)
    by_group = {group.group: group for group in seen}
    # A dump that is cut off does not show what a rank has not issued.
    heard = frozenset(dump.rank for dump in dumps if dump.rank is not None) - cut
    found = _follow(seen, _messages(seen, {dump.rank for dump in dumps if dump.whole}, heard), cut, heard)
    return _findings(found, by_group, cut) or _by_counters(seen, cut)


def _follow(
    seen: Sequence[_Seen],
    messages: Mapping[Message, Mapping[int, tuple[GroupProgress, int]]],
    cut: frozenset[int],
    heard: frozenset[int],
) -> Chains[Place]:
    """Who waits for whom; with `messages`, each pair of ranks is a group of two."""
    first = _first_open(seen, messages)
    progress: dict[Place, Mapping[int, GroupProgress]] = {
        group.group: _progress_in(group, cut, first) for group in seen
    }
    progress |= {
        message: {
            rank: replace(one, first=one.open is None or (message, rank) in first) for rank, (one, _) in of_pair.items()
        }
        for message, of_pair in messages.items()
    }
    members: dict[Place, tuple[int, ...]] = {group.group: group.ranks for group in seen}
    members |= {message: message[1:] for message in messages}
    return follow_chains(progress, members, heard)


def _first_open(
    seen: Sequence[_Seen], messages: Mapping[Message, Mapping[int, tuple[GroupProgress, int]]]
) -> set[tuple[Place, int]]:
    """Group and rank of the oldest call that is not over on each rank, by each recorder."""
    oldest: dict[tuple[str, int], tuple[int, Place]] = {}
    places: list[tuple[str, int, int | None, Place]] = [
        (at.recorder, rank, at.open_place, group.group) for group in seen for rank, at in group.at.items()
    ]
    places += [
        (message[0][0], rank, place if one.open is not None else None, message)
        for message, of_pair in messages.items()
        for rank, (one, place) in of_pair.items()
    ]
    for recorder, rank, place, group in places:
        if place is not None and place < oldest.get((recorder, rank), (place + 1,))[0]:
            oldest[recorder, rank] = (place, group)
    return {(group, rank) for (_, rank), (_, group) in oldest.items()}


def _progress_in(seen: _Seen, cut: frozenset[int], first: Collection[tuple[Place, int]]) -> dict[int, GroupProgress]:
    """How far each rank is, where its dump shows it."""
    found = {}
    uncountable, from_zero = _may_count_others(seen), seen.group[0] == _COUNTS_FROM_ZERO
    for rank, group in seen.at.items():
        if group.calls and rank not in cut:
            is_first = (seen.group, rank) in first
            found[rank] = GroupProgress(max(group.calls), group.open, first=is_first or group.open is None)
        elif group.counters is not None and not uncountable:
            # A dump that is cut off lacks the newest entries. The counters have them. -1 is torch's word for "none yet".
            issued, over = (max(0, count + from_zero) for count in group.counters)
            issued = max(issued, *group.calls, 0)
            waits_in = group.open or (over + 1 if rank in cut and issued > over else None)
            found[rank] = GroupProgress(issued, waits_in)
    return found


def _may_count_others(seen: _Seen) -> bool:
    """Whether the recorder's counters of this group may count more than its collectives."""
    ahead = {difference for one in seen.at.values() for difference in one.operations_ahead}
    return bool(ahead - {-1 if seen.group[0] == _COUNTS_FROM_ZERO else 0}) or any(
        one.messages for one in seen.at.values()
    )


def _messages(
    seen: Sequence[_Seen], whole: Collection[int | None], heard: Collection[int]
) -> dict[Message, dict[int, tuple[GroupProgress, int]]]:
    """Each pair of ranks with a message that is not over -> how far either side is with it, and the place of its oldest open entry.

    Sends and receives of a pair match in their order. Without all of them on both sides, all that is known of one that is not open is
    that it is not open: then it has not come.
    """
    sides: dict[Message, dict[int, list[DumpedMessage]]] = {}
    for group in seen:
        members = group.ranks
        for rank, at in group.at.items():
            for message in at.messages:
                if max(message.sender, message.receiver) < len(members):
                    pair = (group.group, members[message.sender], members[message.receiver])
                    if rank in pair[1:] and pair[1] != pair[2]:
                        sides.setdefault(pair, {}).setdefault(rank, []).append(message)
    found: dict[Message, dict[int, tuple[GroupProgress, int]]] = {}
    for pair, of_pair in sides.items():
        if all(message.over for messages in of_pair.values() for message in messages):
            continue
        counted = all(rank in whole for rank in pair[1:])
        for rank in pair[1:]:
            messages = of_pair.get(rank, []) if rank in heard else []
            waiting = [(number, message.place) for number, message in enumerate(messages, 1) if not message.over]
            if waiting:
                number, place = waiting[0]
                progress = GroupProgress(len(messages), number) if counted else GroupProgress(1, 1)
                found.setdefault(pair, {})[rank] = progress, place
            elif rank in heard:
                found.setdefault(pair, {})[rank] = GroupProgress(len(messages) if counted else 0), -1
    return found


def _findings(found: Chains[Place], seen: Mapping[Group, _Seen], cut: frozenset[int]) -> list[CauseFinding]:
    if found.ends:
        # An end of a chain waits for nobody. What is not over there is over on the others.
        own = {rank: group for group in seen.values() for rank, at in group.at.items() if at.open is not None}
        sent = {
            rank for group in seen.values() for rank, at in group.at.items() if any(not m.over for m in at.messages)
        }
        behind = (own.keys() | sent) & set(found.ends)
        return [
            *_ends(found, sorted(set(found.ends) - behind), seen, cut, {}, "N01", _NOT_COME),
            *_ends(found, sorted(behind), seen, cut, own, "N12", "a rank's device is behind"),
        ]
    if found.together:
        return [_not_ending(found, seen)]
    silent = tuple(rank for rank in found.unheard if rank not in found.waiting)
    if silent:
        saw = (f"{named_ranks(found.waiting)} {_wait(found.waiting)} in a collective", *_unheard(silent, cut))
        return [_late(silent, Confidence.UNCLEAR, saw)]
    if found.waiting:
        saw = (f"{named_ranks(found.waiting)} {_wait(found.waiting)}, and none of them is at the end of a chain",)
        return [
            CauseFinding(
                code=NO_CODE,
                title="ranks wait for each other",
                level=Level.STALL,
                confidence=Confidence.UNCLEAR,
                saw=saw,
                next=(_WHERE.replace("these ranks", "all of them"),),
            )
        ]
    return []


def _ends(
    found: Chains[Place],
    ranks: Sequence[int],
    seen: Mapping[Group, _Seen],
    cut: frozenset[int],
    own: Mapping[int, _Seen],
    code: str,
    title: str,
) -> Iterator[CauseFinding]:
    """Those of the ranks that all others wait for in the end, of one kind."""
    lines: list[str] = []
    last: list[str] = []
    told: set[int] = set()
    for delay in sorted(found.delays, key=lambda delay: (delay.how is Delay.QUEUED, -len(delay.waiting))):
        if delay.rank in ranks and delay.rank not in told:
            told.add(delay.rank)
            lines += _line(delay, seen)
            if delay.rank in own and delay.how is not Delay.BEHIND:
                last += _not_over(delay.rank, own[delay.rank])
            last += _last_call(delay, seen) if code == "N01" else ()
    if ranks:
        saw = (*lines[: 2 * _MOST_LINES], *last[:_MOST_LINES], *_unheard(found.unheard, cut))
        yield _late(ranks, Confidence.LIKELY, saw, code, title)


def _late(
    ranks: Sequence[int], confidence: Confidence, saw: Sequence[str], code: str = "N01", title: str = _NOT_COME
) -> CauseFinding:
    # Who is behind is certain; why is not in a dump.
    return CauseFinding(
        code=code,
        title=title,
        level=Level.STALL,
        ranks=tuple(ranks),
        confidence=confidence,
        saw=tuple(saw),
        next=(_WHERE if code == "N01" else _DEVICES,),
    )


def _line(delay: Delayed[Place], seen: Mapping[Group, _Seen]) -> Iterator[str]:
    """What one rank delays."""
    waiting, number = named_ranks(delay.waiting), delay.number
    if len(delay.group) == 3:
        of, sender, receiver = delay.group
        if delay.how is not Delay.NOT_COME:
            yield f"group {seen[of].title}: {waiting} {_wait(delay.waiting)} for a message that rank {delay.rank} has issued and not begun"
            return
        side = f"send to rank {receiver}" if delay.rank == sender else f"receive from rank {sender}"
        yield f"group {seen[of].title}: {waiting} {_wait(delay.waiting)} for rank {delay.rank} to {side}"
        return
    group = seen[delay.group]
    if delay.how is Delay.BEHIND:
        yield f"group {group.title}: number {number} is over on {waiting}, and not over on rank {delay.rank}, which has issued it"
    elif delay.how is Delay.QUEUED:
        yield (
            f"group {group.title}: {waiting} {_wait(delay.waiting)} in number {number}, "
            f"which rank {delay.rank} has issued and not begun: an earlier one is not over there"
        )
    elif delay.how is Delay.ABSENT:
        yield f"group {group.title}: rank {delay.rank} has nothing open, and {waiting} {_wait(delay.waiting)} in number {number}"
    else:
        yield f"group {group.title}: rank {delay.rank} has not issued number {number}, in which {waiting} {_wait(delay.waiting)}"
    call = next((at.calls[number] for at in group.at.values() if number in at.calls), None)
    if call is not None:
        yield f"number {number}: {call}"


def _not_over(rank: int, group: _Seen) -> Iterator[str]:
    """The oldest collective of a group that is not over on this rank alone."""
    number = group.at[rank].open
    assert number is not None
    past = [one for one, at in group.at.items() if at.open is None or at.open > number]
    yield f"group {group.title}: number {number} is not over on rank {rank}" + (
        f", and over on {named_ranks(past)}" if past else ""
    )


def _last_call(delay: Delayed[Place], seen: Mapping[Group, _Seen]) -> Iterator[str]:
    at = seen[delay.group].at.get(delay.rank) if len(delay.group) == 2 else None
    if at is not None and at.calls and delay.how in (Delay.NOT_COME, Delay.ABSENT):
        number = max(at.calls)
        yield f"rank {delay.rank} last issued number {number}: {at.calls[number]}"


def _not_ending(found: Chains[Place], seen: Mapping[Group, _Seen]) -> CauseFinding:
    """All have come, and it does not end."""
    saw = []
    scheduled: tuple[int, ...] = ()
    for one in found.together[:_MOST_LINES]:
        if len(one.group) == 3:
            saw.append(f"the send from rank {one.group[1]} to rank {one.group[2]} does not end, though both are in it")
            continue
        group = seen[one.group]
        calls = {rank: at.calls[one.number] for rank, at in group.at.items() if one.number in at.calls}
        call = next(iter(calls.values()), None)
        saw.append(
            f"group {group.title}: {named_ranks(one.ranks)} are all in number {one.number}"
            + (f": {call}" if call else "")
        )
        not_begun = tuple(rank for rank, call in calls.items() if call.state == "scheduled")
        if not_begun and any(call.state == "started" for call in calls.values()):
            scheduled = scheduled or not_begun
            saw.append(
                f"it has begun on the others, and not on {named_ranks(not_begun)}: an earlier kernel there does not end"
            )
    if scheduled:
        return _late(scheduled, Confidence.LIKELY, saw, "N12", "a rank's device is behind")
    return CauseFinding(
        code="N11",
        title="a collective that all ranks have come to does not end",
        level=Level.STALL,
        confidence=Confidence.LIKELY,
        saw=tuple(saw),
        next=(
            _DEVICES,
            "TORCH_NCCL_ENABLE_TIMING=1 lets the recorder say on which ranks it has begun (not with nccl2)",
        ),
    )


def _by_counters(seen: Sequence[_Seen], cut: frozenset[int]) -> list[CauseFinding]:
    """Nothing is open by the entries, and counters say otherwise: a batch of sends, which nccl2 calls over as soon as it is issued."""
    for group in seen:
        counts = {rank: at.counters for rank, at in group.at.items() if at.counters is not None and rank not in cut}
        most = max((issued for issued, _ in counts.values()), default=0)
        waiting = tuple(rank for rank, (issued, over) in counts.items() if issued > over)
        late = tuple(rank for rank, (issued, over) in counts.items() if issued == over < most)
        if waiting and late:
            saw = (
                f"group {group.title}: {named_ranks(waiting)} {_wait(waiting)} in an operation that has no entry",
                f"by the recorder's counters {named_ranks(late)} issued fewer operations than the others",
            )
            return [_late(late, Confidence.UNCLEAR, saw)]
    return []


def _unheard(ranks: Sequence[int], cut: frozenset[int]) -> Iterator[str]:
    short = [rank for rank in ranks if rank in cut]
    gone = [rank for rank in ranks if rank not in cut]
    if gone:
        yield f"no dump of {named_ranks(gone)}: gone, or unable to write one"
    if short:
        yield f"the dump of {named_ranks(short)} is truncated before its counters"


def _wait(ranks: Sequence[int]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


# -------------------------------------------------------------------------------------------------------- different calls


def _different_calls(seen: _Seen) -> CauseFinding | None:
    """The first place of the order where two ranks called different things."""
    calls_of = {rank: group.calls for rank, group in seen.at.items() if group.calls}
    common = set.intersection(*(set(calls) for calls in calls_of.values())) if len(calls_of) > 1 else set()
    for index in sorted(common):
        calls = {rank: calls[index] for rank, calls in calls_of.items()}
        # A rank that only receives in a scatter has no input.
        typed = all(call.dtypes for call in calls.values())
        kind_of = {rank: _kind(call, typed) for rank, call in calls.items()}
        kinds = Counter(kind_of.values())
        if len(kinds) == 1:
            continue
        (usual, count), *_ = kinds.most_common()
        # Without a majority nobody knows who is odd.
        sure = count > len(calls) / 2
        first = next(rank for rank, kind in kind_of.items() if not sure or kind == usual)
        odd = tuple(rank for rank, kind in kind_of.items() if kind != kind_of[first])
        alike = [one == other for one, other in zip(kind_of[first], kind_of[odd[0]], strict=True)]
        code = "M01" if not alike[0] else "M02" if not alike[1] else "M03"
        site = calls[odd[0]].site or calls[first].site
        return CauseFinding(
            code=code,
            title=_TITLES[code],
            level=Level.DIVERGENCE,
            ranks=odd if sure else tuple(calls),
            confidence=Confidence.HIGH,
            saw=tuple(f"group {seen.title}, number {index}, rank {rank}: {calls[rank]}" for rank in (first, *odd[:3])),
            next=(f"make every rank issue the same call there: {site or 'the dumps have no call sites'}",),
        )
    return None


def _kind(call: DumpedCall, typed: bool) -> tuple[str, str, str]:
    """Operation, shapes and types as far as they must be alike. Shapes of a scatter or an uneven all_gather rightly differ."""
    name = call.operation.lstrip("_").removesuffix("_base")
    name = _SAME.get(name, name)
    shapes = call.shapes if "reduce" in name and "scatter" not in name else ""
    return name, shapes, call.dtypes if typed else ""
