"""Conditions on machine types, as `--where` states them: 'gpus>=8,efa=yes,price<40'."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paceline.catalog.lookup import find_accelerator
from paceline.catalog.types import MachineType, gpu_memory_gib
from paceline.errors import UsageError

_COMPARISON = re.compile(r"(\w+)(<=|>=|=<|=>|<|>)(\d+(?:\.\d+)?)")
_CONDITION = re.compile(r"(?P<field>[a-z_]+)\s*(?P<operator>>=|<=|!=|==|=|>|<)\s*(?P<value>.*)", re.IGNORECASE)


def _gpu_memory_gib(of: MachineType) -> float | None:
    return gpu_memory_gib(of, None if of.accelerator is None else find_accelerator(of.accelerator))


NUMBERS: Mapping[str, Callable[[MachineType], float | None]] = {
    "gpus": lambda of: of.accelerator_count,
    "gpu_memory": _gpu_memory_gib,
    "vcpus": lambda of: of.vcpu_count,
    "memory": lambda of: of.memory_gib,
    "network": lambda of: of.network_gbps,
    "price": lambda of: of.usd_per_hour,
    "efa_interfaces": lambda of: of.efa_interface_count if of.efa_interface_count or of.efa is not False else 0,
    "storage": lambda of: of.local_storage_gb,
}
ANSWERS: Mapping[str, Callable[[MachineType], bool | None]] = {
    "efa": lambda of: of.efa,
    "nvlink": lambda of: of.nvlink,
    "sagemaker": lambda of: of.sagemaker_training,
    "smddp": lambda of: None if of.smddp is None else bool(of.smddp),
}
TEXTS: Mapping[str, Callable[[MachineType], str | None]] = {
    "name": lambda of: of.name,
    "family": lambda of: of.name.partition(".")[0],
    "gpu": lambda of: of.accelerator or "",
    "link": lambda of: of.intra_link or "",
}
_WORDS = {"yes": True, "true": True, "no": False, "false": False}
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One comparison: `holds` is None if the type's figure is not known."""

    text: str
    holds: Callable[[MachineType], bool | None]


def conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of one --where, all of which must hold.

    Raises:  UsageError U03: a field, an operator or a value that it does not know
    """
    return tuple(_condition(part) for part in text.split(",") if part.strip())


def matches(of: MachineType, wanted: tuple[Condition, ...]) -> bool | None:
    """Whether all hold; None if none fails and one is not known.

    Holds:   matches(of, ()) is True
    """
    answers = [condition.holds(of) for condition in wanted]
    if False in answers:
        return False
    return None if None in answers else True


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text.strip())
    if found is None or not found["value"]:
        raise _refused(text, "it is not a comparison")
    name, operator, value = found["field"].lower(), found["operator"].replace("==", "="), found["value"]
    if name in NUMBERS:
        return Condition(text=text.strip(), holds=_number(text, NUMBERS[name], operator, value))
    if operator not in ("=", "!="):
        raise _refused(
            text, f"{name} is compared with = or !=" if name in ANSWERS or name in TEXTS else "there is no such field"
        )
    if name in ANSWERS:
        return Condition(text=text.strip(), holds=_answer(text, ANSWERS[name], operator, value))
    if name in TEXTS:
        return Condition(text=text.strip(), holds=_contains(TEXTS[name], operator, value))
    raise _refused(text, "there is no such field")


def _number(
    text: str, read: Callable[[MachineType], float | None], operator: str, value: str
) -> Callable[[MachineType], bool | None]:
    try:
        limit = float(value)
    except ValueError:
        raise _refused(text, f"{value!r} is not a number") from None
    compare = _COMPARE[operator]

    def holds(of: MachineType) -> bool | None:
        figure = read(of)
        return None if figure is None else compare(figure, limit)

    return holds


def _answer(
    text: str, read: Callable[[MachineType], bool | None], operator: str, value: str
) -> Callable[[MachineType], bool | None]:
    wanted = _WORDS.get(value.lower())
    if wanted is None:
        raise _refused(text, f"{value!r} is neither yes nor no")

    def holds(of: MachineType) -> bool | None:
        answer = read(of)
        return None if answer is None else (answer == wanted) == (operator == "=")

    return holds


def _contains(
    read: Callable[[MachineType], str | None], operator: str, value: str
) -> Callable[[MachineType], bool | None]:
    """Whether a text contains a word: `gpu=a100` finds every A100; a family is the whole word."""
    whole = read is TEXTS["family"]

    def holds(of: MachineType) -> bool | None:
        text = (read(of) or "").lower()
        return (text == value.lower() if whole else value.lower().removeprefix("ml.") in text) == (operator == "=")

    return holds


def _meant(text: str) -> str:
    """The condition that was meant, if an operator is written backwards or a count lacks its s: "gpu=>4" -> "gpus>=4"; "" otherwise."""
    found = _COMPARISON.fullmatch("".join(text.split()))
    if found is None:
        return ""
    field, operator, limit = found[1].lower(), found[2], found[3]
    field = next((name for name in (field, f"{field}s") if name in NUMBERS), "")
    operator = operator[::-1] if operator.startswith("=") else operator
    return f"--where '{field}{operator}{limit}'" if field else ""


def _refused(text: str, saw: str) -> UsageError:
    fields = ", ".join([*NUMBERS, *ANSWERS, *TEXTS])
    return UsageError(
        "U03",
        f"--where {text.strip()!r} cannot be asked: fields are {fields}",
        saw=saw,
        next=_meant(text) or "--where 'gpus>=8,efa=yes,gpu=a100,price<40'",
    )
