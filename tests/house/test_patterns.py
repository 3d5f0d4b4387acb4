"""The time of each pattern grows with the length of its text, not with its square: whoever prints a line chooses how long it is."""

import importlib
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from re import _constants as constants
from re import _parser as parser

import paceline

# What is linear reads the longest text in about 0.2 ms, what looks ahead for a bounded way in at most 40, what is quadratic in 150 ms
# and more; what grows faster is known by a shorter text.
LENGTHS = (24, 128, 512, 2048, 16384)
SECONDS, LONGEST_SECONDS = 0.02, 0.1
QUADRATIC = re.compile(rb"-+>")
WAYS = ("findall", "fullmatch", "match")
# They read words of the user's own command line and of our own messages, and must not miss a password.
OF_ITS_OWN_USER = ("paceline.storage.urls._USER", "paceline.storage.urls._QUERY")
# Each of these is a program, which ends the process that imports it.
PROGRAMS = ("__main__", "run_script")


def patterns(module) -> Iterator[tuple[str, re.Pattern]]:
    """Those that a module holds by a name, or in a list, tuple or table, also as the `pattern` of a row."""
    for name, value in vars(module).items():
        held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        for row in held:
            pattern = row if isinstance(row, re.Pattern) else getattr(row, "pattern", None)
            if isinstance(pattern, re.Pattern):
                yield name, pattern


def ways_to_look(source: str, name: str) -> tuple[str, ...]:
    """The methods with which a pattern is used where it is made. One that is handed on may be used with any of that file."""
    names = [name, *re.findall(rf"for (\w+) in {name}\b", source)]
    uses = len(re.findall(rf"\b{name}\b", source)) - len(names)
    own = re.findall(rf"\b(?:{'|'.join(names)})\.(\w+)\(", source)
    used = own if uses <= len(own) else re.findall(r"\.(\w+)\(", source)
    ways = {"findall" if way in ("finditer", "search", "sub", "subn") else way for way in used}
    return tuple(sorted(ways & {*WAYS})) or WAYS


def sample(node) -> str:
    """One text that this part of a parsed pattern takes; '' where it takes none by itself."""
    kind, value = node
    if kind is constants.LITERAL:
        return chr(value)
    if kind in (constants.NOT_LITERAL, constants.ANY):
        return next(char for char in "a b" if value is None or ord(char) != value)
    if kind is constants.IN:
        return next((char for char in "a1 -_.:=/,'\"[(<\\\tAx" if takes(value, char)), "")
    if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
        return text_of(value[2]) * max(1, min(value[0], 3))
    if kind is constants.SUBPATTERN:
        return text_of(value[3])
    if kind is constants.BRANCH:
        return text_of(value[1][0])
    return ""


def takes(members, char: str) -> bool:
    negated = members[0][0] is constants.NEGATE
    inside = any(
        (kind is constants.LITERAL and chr(value) == char)
        or (kind is constants.RANGE and value[0] <= ord(char) <= value[1])
        or (kind is constants.CATEGORY and re.match(CATEGORIES[value], char) is not None)
        for kind, value in members
    )
    return inside != negated


CATEGORIES = {
    constants.CATEGORY_DIGIT: r"\d",
    constants.CATEGORY_NOT_DIGIT: r"\D",
    constants.CATEGORY_SPACE: r"\s",
    constants.CATEGORY_NOT_SPACE: r"\S",
    constants.CATEGORY_WORD: r"\w",
    constants.CATEGORY_NOT_WORD: r"\W",
}


def text_of(nodes) -> str:
    return "".join(sample(node) for node in nodes)


def pumps(nodes, before: str = "") -> Iterator[tuple[str, str]]:
    """What stands before a part of a pattern, and what it may be repeated with: each part, alone and with its neighbour."""
    for at, node in enumerate(nodes):
        kind, value = node
        yield before, sample(node)
        yield before, sample(node) + text_of(nodes[at + 1 : at + 2])
        if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            yield from pumps(value[2], before)
        elif kind is constants.SUBPATTERN:
            yield from pumps(value[3], before)
        elif kind is constants.BRANCH:
            for branch in value[1]:
                yield from pumps(branch, before)
                yield before, text_of(branch)
        before += sample(node)


def attacks(pattern: re.Pattern) -> set[tuple[str, str, str]]:
    """Beginning, what is repeated, and end of texts that make a careless pattern read again what it has read: its own parts, many times."""
    parsed = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    repeated = {*pumps(list(parsed)), *(("", text) for text in (text_of(parsed), "a", " ", "a ", "1"))}
    return {
        (before, text, end)
        for before, pump in repeated
        for text in {pump, pump[:1], pump.strip()} - {""}
        for end in ("", "\n", "!", "\0", " x")
    }


def slowest(pattern: re.Pattern, ways: Sequence[str] = WAYS) -> tuple[float, str | bytes]:
    """Seconds of this thread's CPU, and the beginning of the text, with which it takes too long; 0 where it never does."""
    for attack in sorted(attacks(pattern)):
        for length in LENGTHS:
            most = LONGEST_SECONDS if length == LENGTHS[-1] else SECONDS
            seconds, text = seconds_of(pattern, ways, attack, length)
            if seconds > most and grows(pattern, ways, attack, length):
                return seconds, text[:40]
            if length == LENGTHS[-2] and seconds < SECONDS / 16:
                break
    return 0.0, ""


def grows(pattern: re.Pattern, ways: Sequence[str], attack: tuple[str, str, str], length: int) -> bool:
    """Whether 16 times the text takes more than 64 times as long (linear is 16, quadratic 256), and the longest text at least half as
    long as with the quickest pattern that is quadratic, looked at in turn with it: a busy machine slows both."""
    looks = [
        [seconds_of(pattern, ways, attack, of)[0] for of in (length // 16, length)]
        + [seconds_of(QUADRATIC, ("findall",), ("", "-", ""), length)[0]]
        for _ in range(3)
    ]
    short, long, quadratic = map(min, zip(*looks, strict=True))
    return long > 64 * short and (length < LENGTHS[-1] or long > quadratic / 2)


def seconds_of(
    pattern: re.Pattern, ways: Sequence[str], attack: tuple[str, str, str], length: int
) -> tuple[float, str | bytes]:
    before, repeated, end = attack
    text = before + repeated * (length // len(repeated)) + end
    if isinstance(pattern.pattern, bytes):
        text = text.encode("latin-1", "replace")
    began = time.thread_time()
    for way in ways:
        getattr(pattern, way)(text)
    return time.thread_time() - began, text


def test_a_quadratic_pattern_is_found():
    for text in (
        r"\w+:",
        r"[\w.]*(?:token|key)[\w.]*=",
        r"^\s*(?:a+)+b",
        r"a.*b.*c",
        rb"-+>",
        r"x=\s*\S*\s*$",
        r"(?:ab)*c",
    ):
        assert slowest(re.compile(text))[0], text
    for text in (r"^\w+:", r"(?<!\w)\w+:", r"token=(\S+)", rb"^a.*b"):
        assert not slowest(re.compile(text))[0], text


def test_a_pattern_is_looked_at_as_it_is_used():
    source = "A = re.compile('a')\nA.sub('', x)\nA.match(x)\nB = re.compile('b')\nline_of(B)\nB.match(x)"
    assert ways_to_look(source, "A") == ("findall", "match") == ways_to_look(source, "B")
    each = "C = (re.compile('c'),)\nfor one in C:\n    one.match(x)\nA.sub('', x)"
    assert ways_to_look(each, "C") == ("match",)
    assert ways_to_look("B = re.compile('b')\nline_of(B)", "B") == WAYS


def test_no_pattern_of_the_package_is_quadratic():
    slow = []
    for path in sorted(Path(paceline.__file__).parent.rglob("*.py")):
        name = ".".join(("paceline", *path.relative_to(Path(paceline.__file__).parent).with_suffix("").parts))
        source = path.read_text(encoding="utf-8")
        if "re.compile(" not in source or path.stem in PROGRAMS:
            continue
        module = importlib.import_module(name.removesuffix(".__init__"))
        for held_as, pattern in patterns(module):
            if f"{name}.{held_as}" in OF_ITS_OWN_USER:
                continue
            seconds, text = slowest(pattern, ways_to_look(source, held_as))
            if seconds:
                slow.append(f"{name}.{held_as}: {seconds:.2f} s for {text!r}...")
    assert not slow
