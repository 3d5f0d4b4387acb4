"""A verb is its options, and an option is one row: parser, help, completion scripts and docs/verbs.md are all made of the rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Example = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or one word that stands for itself."""

    name: str
    """The long spelling, without the dashes in front of it."""
    help: str
    """Sentences that say what it does. The default is not in them."""
    metavar: str = ""
    """What the value is: capitals stand for something, small letters for themselves (FILE|latest). Empty, without choices: a flag."""
    default: Any = None
    """The value where nothing is given."""
    default_text: str = ""
    """What the default is, in words, where it is found out later."""
    kind: Callable[[str], Any] = str
    """Makes a value of the text."""
    choices: tuple[str, ...] = ()
    """The only values that are taken."""
    letter: str = ""
    """The short spelling, without its dash."""
    has_underscores: bool = False
    """Whether the long spelling is taken with underscores too."""
    variable: str = ""
    """The environment variable that gives another default, such as PET_NNODES."""
    section: str = ""
    """The heading it stands below."""
    repeatable: bool = False
    """Each use adds a value to a list."""
    count: str = ""
    """How many values follow, as argparse writes it ("?", "*", "+"). Empty: one."""
    is_positional: bool = False
    """Whether the value stands alone, without a name in front of it."""
    required: bool = False
    """Whether it must be given."""
    stored_as: str = ""
    """The attribute of the parsed arguments, where it is not the name. Flags with the same one exclude each other."""
    const: Any = True
    """What a flag sets that attribute to."""
    hidden: bool = False
    """Taken, but not shown."""
    more: str = ""
    """Markdown that docs/verbs.md has behind the help, such as a link."""

    @property
    def dest(self) -> str:
        return self.stored_as or self.name.replace("-", "_")

    @property
    def is_flag(self) -> bool:
        return not (self.metavar or self.choices or self.is_positional)

    @property
    def value(self) -> str:
        """What stands for the value in help and documentation; "" for a flag."""
        word = "|".join(self.choices) or self.metavar
        return f"{word} ..." if self.count in ("*", "+") else word

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling that is taken, the short one first; none for a positional."""
        if self.is_positional:
            return ()
        short = (f"-{self.letter}",) if self.letter else ()
        twin = (f"--{self.name.replace('-', '_')}",) if self.has_underscores and "-" in self.name else ()
        return (*short, f"--{self.name}", *twin)

    @property
    def shown_spellings(self) -> tuple[str, ...]:
        """The short and the long one, without the twin that has underscores."""
        return tuple(spelling for spelling in self.spellings if not (spelling.startswith("--") and "_" in spelling))

    @property
    def unset(self) -> Any:
        """The value where neither the command line nor a variable says anything."""
        if self.is_flag and self.const is True:
            return bool(self.default)
        # A list in a frozen row could be changed by its reader.
        return list(self.default) if isinstance(self.default, tuple) else self.default

    @property
    def shown_default(self) -> str:
        """The default as help and documentation show it; "" where there is nothing to show."""
        if self.default_text or self.is_flag or self.default in (None, (), ""):
            return self.default_text
        return str(self.default)


@dataclass(frozen=True, slots=True)
class Verb:
    """What `paceline VERB --help` and its section of docs/verbs.md say, and what its command line takes."""

    name: str
    """As it is typed behind `paceline`."""
    about: str
    """A sentence or two: what the verb does."""
    examples: tuple[Example, ...]
    """Two command lines, and what each does."""
    options: tuple[Option, ...] = ()
    """Its rows, those that every verb has left out."""
    usage: str = ""
    """The forms of its command line, one a line, where rows alone do not say it."""
    operand: str = ""
    """What its first word may be, where no row says it, written as a metavar."""
    script_place: int = 0
    """Which of its words is a script: what follows it is the script's. 0: none is."""
    passed_on: tuple[Option, ...] = ()
    """Rows of `paceline run` that it takes as well and passes on."""
    epilog: str = ""
    """The end of its help."""
    page: str = ""
    """Markdown that its section of docs/verbs.md has behind `about`."""
    section_texts: Mapping[str, str] = field(default_factory=dict)
    """Section -> Markdown below its heading; the help shows it too."""
    notes: str = ""
    """Markdown at the end of its section of docs/verbs.md."""

    @property
    def rows(self) -> tuple[Option, ...]:
        """Its own rows, and of those that every verb has the ones that it does not have itself."""
        own = {row.name for row in self.options}
        return (*self.options, *(row for row in EVERY_VERB if row.name not in own))

    @property
    def sections(self) -> dict[str, tuple[Option, ...]]:
        """Section -> its rows, hidden ones left out, in the order in which sections begin."""
        found: dict[str, tuple[Option, ...]] = {}
        for row in self.rows:
            if not row.hidden:
                found[row.section] = (*found.get(row.section, ()), row)
        return found

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of its command line."""
        if self.usage:
            return tuple(self.usage.splitlines())
        words = [f"[{row.value}]" if row.count else row.value for row in self.options if row.is_positional]
        return (" ".join([f"paceline {self.name} [OPTIONS]", *words]),)


def section(title: str, *rows: Option) -> tuple[Option, ...]:
    """The rows, below one heading."""
    return tuple(replace(row, section=title) for row in rows)


HELP = Option("help", "Print this help.", letter="h")
JSON = Option("json", "Print one JSON object instead of text.")
COLOR = Option("color", "Colour of the text.", choices=("auto", "always", "never"), default="auto")
EVERY_VERB = (JSON, COLOR)

RUN = Option(
    "run",
    "Id of a run, the beginning of an id, or its directory.",
    "RUN",
    default_text="the newest run here",
    count="?",
    is_positional=True,
)
FURTHER_DIRECTORIES = Option(
    "dir",
    "A further directory of the same run, from another host. May be repeated.",
    "DIR",
    default=(),
    repeatable=True,
    stored_as="directories",
)
RANKS = Option("rank", "Only these ranks: 3 or 3,8-11.", "LIST")
MODULE = Option("module", "The script is a module name, run as `python -m NAME`.", letter="m")
