"""Machines that no cloud offers, described in TOML with the fields of the catalogue.

[[machine]]
name = "lab-a6000"
accelerator = "RTX A6000"
accelerator_count = 4
intra_link = "pcie4"
network_gbps = 25

[[accelerator]]                # only for one that the catalogue does not have
name = "ACME X1"
bf16_tflops = 100
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from paceline.catalog.lookup import find_accelerator
from paceline.catalog.types import Accelerator, MachineType
from paceline.errors import UsageError

_TEXTS = ("name", "accelerator", "intra_link", "smddp", "note", "source")
_ANSWERS = ("efa", "sagemaker_training")
_COUNTS = ("vcpu_count", "accelerator_count", "efa_interface_count", "pcie_generation", "power_watts")
_NOT_TO_WRITE = ("sources", "doubtful")
_EXAMPLE = 'a [[machine]] with name = "lab", accelerator = "RTX A6000", accelerator_count = 4, network_gbps = 25'


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFile:
    """The content of one file. `accelerators`: those that the catalogue does not have, or has with other figures."""

    machines: tuple[MachineType, ...]
    accelerators: tuple[Accelerator, ...] = ()

    def accelerator(self, name: str) -> Accelerator | None:
        """The file's own accelerator of this name, else the catalogue's."""
        own = next((one for one in self.accelerators if one.name.lower() == name.lower()), None)
        return own if own is not None else find_accelerator(name)


def read_machines(path: str | Path) -> MachineFile:
    """The machines of one file.

    Raises:  UsageError U27: it cannot be read, is not TOML, or describes no machine of this kind
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as refused:
        saw = refused.strerror if isinstance(refused, OSError) and refused.strerror else str(refused)
        raise UsageError("U27", f"the machine file {path} cannot be read", saw=saw, next=f"ls -l {path}") from None
    return parse_machines(text, source=str(path))


def parse_machines(text: str, *, source: str) -> MachineFile:
    """The same from its text; `source` is what its figures are said to be from.

    Raises:  UsageError U27
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise _refused(source, str(wrong), "repair the line that it names") from None
    unknown = sorted(set(document) - {"machine", "accelerator"})
    if unknown:
        raise _refused(source, f"unknown table {unknown[0]!r}; there are [[machine]] and [[accelerator]]", _EXAMPLE)
    accelerators = tuple(_accelerator(entry, source) for entry in _tables(document, "accelerator", source))
    own = {one.name.lower() for one in accelerators}
    machines = tuple(_machine(entry, source, own) for entry in _tables(document, "machine", source))
    if not machines and not accelerators:
        raise _refused(source, "it describes nothing", _EXAMPLE)
    names = [machine.name for machine in machines]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _refused(source, f"two machines are called {twice!r}", "give each a name of its own")
    return MachineFile(machines=machines, accelerators=accelerators)


def _tables(document: Mapping[str, Any], kind: str, source: str) -> list[dict[str, Any]]:
    entries = document.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _refused(source, f"[{kind}] is one table; a list of them is written [[{kind}]]", f"write [[{kind}]]")
    return entries


def _machine(entry: Mapping[str, Any], source: str, own: set[str]) -> MachineType:
    values = _checked(entry, MachineType, source)
    name = values.get("accelerator")
    if name is not None and name.lower() not in own and find_accelerator(name) is None:
        raise _refused(
            source,
            f"machine {values['name']!r} has a {name!r}, which the catalogue does not have",
            f'name one of `paceline plan --instances --accelerators`, or add [[accelerator]] with name = "{name}"',
        )
    if name is not None:
        values.setdefault("accelerator_count", 1)
    return MachineType(**values, sources={"": source})


def _accelerator(entry: Mapping[str, Any], source: str) -> Accelerator:
    return Accelerator(**{"source": source, **_checked(entry, Accelerator, source)})


def _checked(entry: Mapping[str, Any], kind: type[MachineType] | type[Accelerator], source: str) -> dict[str, Any]:
    """The entry's values, each of the type of its field and none of them negative."""
    known = [field.name for field in fields(kind) if field.name not in _NOT_TO_WRITE]
    if not isinstance(entry.get("name"), str) or not entry["name"].strip():
        raise _refused(source, "an entry without a name", 'add name = "..."')
    called = entry["name"]
    for name, value in entry.items():
        if name not in known:
            raise _refused(
                source, f"{called!r} has an unknown field {name!r}; there are {', '.join(known)}", f"remove {name}"
            )
        if not _fits(name, value):
            raise _refused(source, f"{called!r} has {name} = {value!r}; expected {_expected(name)}", f"correct {name}")
    return {name: float(value) if _is_number(value) and name not in _COUNTS else value for name, value in entry.items()}


def _fits(name: str, value: Any) -> bool:
    if name in _TEXTS:
        return isinstance(value, str)
    if name in _ANSWERS:
        return isinstance(value, bool)
    if name in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return _is_number(value) and 0 <= value < float("inf")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _expected(name: str) -> str:
    if name in _TEXTS:
        return "a text in quotes"
    if name in _ANSWERS:
        return "true or false"
    return "a whole number of 0 or more" if name in _COUNTS else "a number of 0 or more"


def _refused(source: str, saw: str, next_step: str) -> UsageError:
    return UsageError("U27", f"the machine file {source} cannot be used", saw=saw, next=next_step)
