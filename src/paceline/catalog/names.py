"""Names of machine types and accelerators as people, drivers and tables spell them, brought to one spelling."""

import re
from collections.abc import Iterable, Sequence

from paceline.spelling import most_alike

_VENDOR = re.compile(r"^(nvidia|amazon|aws|amd|intel|habana|instinct|tesla|geforce|\s|-|_)+", re.IGNORECASE)
_NOISE = re.compile(r"\b(generation|edition|gpu|graphics|gb|gib|cts)\b|[^a-z0-9]", re.IGNORECASE)
_MEMORY = re.compile(r"[-_ ]?(?<!\d)(\d+)\s?gi?b?$", re.IGNORECASE)
_SIZES = ("nano", "micro", "small", "medium", "large", "xlarge")
_NEAREST = 3


def type_key(name: str) -> str:
    """The name of an EC2 instance type, as the catalogue spells it.

    Holds:  type_key(" ml.P4D.24xlarge") == type_key("p4d.24xlarge") == "p4d.24xlarge"
    """
    return name.strip().lower().removeprefix("ml.")


def accelerator_keys(name: str) -> tuple[str, ...]:
    """Spellings to look an accelerator up by, the most exact first: without its maker, then without its memory.

    Holds:  "NVIDIA A100-SXM4-40GB", "A100_SXM4_40GB" and "a100 sxm4 40 GB" have the same first key
    """
    plain = _VENDOR.sub("", name.strip())
    plain = re.sub(r"(\d)\s+(gi?b)\b", r"\1\2", re.sub(r"[_]+", " ", plain), flags=re.IGNORECASE)
    keys = [_squeezed(plain)]
    without = _MEMORY.sub("", plain.rstrip())
    if without != plain and len(_squeezed(without)) >= 2:
        keys.append(_squeezed(without))
    return tuple(dict.fromkeys(keys))


def stated_memory_gib(name: str) -> float | None:
    """The memory that a name ends with: 40 for "A100-SXM4-40GB"; None if it names none."""
    found = _MEMORY.search(name.strip())
    return float(found[1]) if found and "gb" in found[0].lower().replace("gib", "gb") else None


def nearest_types(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """The types that the user most likely means: those of the same family by similar size, then by spelling.

    Holds:  nearest_types("p3dn.48xlarge", known)[0] == "p3dn.24xlarge"
    """
    key = type_key(name)
    family, _, size = key.partition(".")
    same = sorted(
        (other for other in known if other.partition(".")[0] == family), key=lambda other: _distance(size, other)
    )
    return tuple(dict.fromkeys([*same, *_alike(key, known)]))[:_NEAREST]


def nearest_accelerators(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """The accelerators whose names look most like this one."""
    keys = {accelerator_keys(other)[0]: other for other in known}
    return tuple(keys[key] for key in _alike(accelerator_keys(name)[0], keys))


def _squeezed(text: str) -> str:
    return _NOISE.sub("", text).lower()


def _alike(word: str, known: Iterable[str]) -> list[str]:
    return most_alike(word, known, _NEAREST, 0.5)


def _distance(size: str, other: str) -> tuple[float, str]:
    return abs(_scale(size) - _scale(other.partition(".")[2])), other


def _scale(size: str) -> float:
    """Instance sizes in order: each doubling is one more."""
    if size in _SIZES:
        return float(_SIZES.index(size))
    number = re.match(r"(\d+)xlarge", size)
    return len(_SIZES) - 1 + (int(number[1]).bit_length() + int(number[1]) / 1000 if number else 7)
