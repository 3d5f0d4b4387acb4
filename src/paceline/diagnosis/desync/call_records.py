"""Turns a rank's records of calls and exchanges, and the tables beside them, into calls that can be compared. Pure."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from paceline.diagnosis.case import Call, GroupCounters, Site
from paceline.diagnosis.desync.calls import RankCalls
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.recording.exchanges import DTYPES, ExchangeRow
from paceline.recording.ring import OPERATIONS, RECORD, RecordKind
from paceline.recording.string_table import CallSite, NamedGroup, Signature, StringTable

# Method of a process group -> function of torch.distributed. If a method is missing, both have the same name.
PUBLIC_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "recv_anysource": "recv",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather_coalesced": "all_gather_coalesced",
    "_allgather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall_base": "all_to_all_single",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
}
# Operations whose input is the same on every rank: the recorder keeps no other shape.
_SAME_INPUT = frozenset(
    {"all_reduce", "allreduce", "broadcast", "reduce", "barrier", "allgather_base", "reduce_scatter_base"}
) | {"all_gather_into_tensor", "reduce_scatter_tensor", "all_gather_base"}
_CALL, _STEP, _EXCHANGE = int(RecordKind.CALL), int(RecordKind.STEP), int(RecordKind.EXCHANGE)
_TO_ONE_PEER = frozenset(map(OPERATIONS.index, ("send", "recv", "recv_anysource")))
# If a rank makes very many calls, one block of 64 in 4,096 is compared: a shift by one call lasts, so it is found soon.
_BLOCK, _EVERY_BLOCKS = 64, 64
# Code of the operation, step, the values of the record.
_Record = tuple[int, int | None, list[int]]


class CallReader:
    """Reads one ring's records piece by piece; remembers the step between two pieces.

    `held`: the newest calls of a rank that made too many to report all. They are reported when it makes no more, because then
    they may matter.
    """

    def __init__(self, texts: StringTable) -> None:
        self._texts = texts
        self._step: int | None = None
        self._sites: dict[int, Site] = {}
        self.held: list[_Record] = []

    def take(self, rank: int, records: bytes, lost: int, *, most: int | None = None) -> list[RankCalls]:
        """The calls in the records that RingReader returned. `lost` records may have been calls of any group, so each group gets them.

        Of more than `most` calls only certain blocks are returned, the same on every rank; the others count as lost.
        """
        if lost:
            self._step = None
        found = list(self._calls(records))
        if most is not None and len(found) > most:
            self.held = found[-_BLOCK:]
            kept = [record for record in found if _is_compared(record[2][0])]
            lost += len(found) - len(kept)
            found = kept
        elif self.held:
            found = self.held + found
            self.held = []
        found.sort(key=_group_number)
        return [
            self._of_group(rank, number, tuple(self._call(*record) for record in calls), lost)
            for number, calls in groupby(found, _group_number)
        ]

    def _calls(self, records: bytes) -> Iterator[_Record]:
        for kind, _, code, *values in RECORD.iter_unpack(records):
            if kind == _STEP:
                self._step = values[0]
            elif kind == _CALL:
                yield code, self._step, values

    def _of_group(self, rank: int, number: int, calls: tuple[Call, ...], lost: int) -> RankCalls:
        group = self._texts.groups.get(number, NamedGroup(f"#{number}"))
        return RankCalls(rank, group.name, group.ranks, calls, lost, group.backend)

    def _call(self, code: int, step: int | None, values: list[int]) -> Call:
        index, issued_ns, _, signature_number, site_number, size_bytes, _ = values
        name = OPERATIONS[code] if code < len(OPERATIONS) else "unknown"
        signature = self._texts.signatures.get(signature_number, Signature(name))
        return Call(
            index=index,
            operation=public_name(code),
            issued_ns=issued_ns,
            reduce_op=signature.reduce_op,
            root=signature.root if signature.root is not None else signature.peer,
            dtype=signature.dtype,
            shape=signature.shape,
            size_bytes=size_bytes,
            site=self._site(site_number),
            step=step,
        )

    def _site(self, number: int) -> Site | None:
        site = self._sites.get(number)
        if site is None and (text := self._texts.sites.get(number)) is not None:
            site = self._sites[number] = as_site(text)
        return site


def public_name(code: int) -> str:
    """Name of the operation with this code in torch.distributed."""
    name = OPERATIONS[code] if code < len(OPERATIONS) else "unknown"
    return PUBLIC_NAMES.get(name, name)


def exchange_counters(
    rows: Iterable[ExchangeRow], texts: StringTable, world_size: int | None
) -> tuple[GroupCounters, ...]:
    """A ring's table as counters. The group of all ranks has no list of its ranks, because each rank sends this twice a second."""
    found = []
    for row in rows:
        group = texts.groups.get(row.group, NamedGroup(f"#{row.group}"))
        everybody = bool(group.ranks) and len(group.ranks) == world_size
        found.append(
            GroupCounters(
                name=group.name,
                enqueued=row.entered,
                completed=row.over,
                ranks=group.ranks if group.ranks and not everybody else None,
                everybody=everybody,
                operation=public_name(row.operation) if row.operation else None,
                dtype=_dtype(row.dtype),
                numel=row.numel or None,
            )
        )
    return tuple(found)


def exchange_entries(records: bytes, texts: StringTable) -> list[TraceEntry]:
    """The exchanges among a ring's records in the form of a flight recorder, with flat shapes and without sends and receives."""
    found = []
    for kind, _, code, index, entered_ns, number, numel, dtype, *_ in RECORD.iter_unpack(records):
        if kind == _EXCHANGE and code not in _TO_ONE_PEER:
            group = texts.groups.get(number, NamedGroup(f"#{number}"))
            found.append(
                TraceEntry(
                    group=group.name,
                    index=index,
                    operation=public_name(code),
                    dtype=_dtype(dtype),
                    shape=(numel,),
                    created_ns=entered_ns,
                )
            )
    return found


def _dtype(code: int) -> str | None:
    return DTYPES[code] if 0 < code < len(DTYPES) else None


def as_site(text: CallSite) -> Site:
    return Site(
        file=text.file, line=text.line, function=text.function, callers=text.callers, outside_loop=text.outside_loop
    )


def _is_compared(index: int) -> bool:
    """Whether every rank reports its call with this index, however many it makes; a send or receive, index 0, is never compared."""
    return index > 0 and index // _BLOCK % _EVERY_BLOCKS == 0


def _group_number(record: _Record) -> int:
    return record[2][2]


def recorded_calls(rank: int, entries: Iterable[TraceEntry]) -> list[RankCalls]:
    """The same for a flight recorder's entries, which have neither reduce operation nor root, and a call site only from a rank's memory."""
    by_group: dict[tuple[str, str], list[Call]] = {}
    for entry in entries:
        call = Call(
            index=entry.index,
            operation=entry.operation,
            issued_ns=entry.created_ns or 0,
            dtype=entry.dtype,
            shape=entry.shape if entry.operation in _SAME_INPUT else None,
            site=entry.site,
        )
        by_group.setdefault((entry.group, entry.recorder), []).append(call)
    return [
        RankCalls(rank, group, (), tuple(calls), 0, recorder=recorder) for (group, recorder), calls in by_group.items()
    ]
