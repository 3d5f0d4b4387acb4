"""A verb has options, and each option is one row. Parser, help, completion scripts and docs/verbs.md are all generated from the rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Example = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or one positional argument."""

    name: str
    """The long spelling, without the leading dashes."""
    help: str
    """Sentences that describe the option's effect. The default is not in them."""
    metavar: str = ""
    """The metavar: capitals name a kind of value, small letters are the value itself (FILE|latest). Empty, without choices: a flag."""
    default: Any = None
    """The default value."""
    default_text: str = ""
    """The default in words, if it is determined later."""
    kind: Callable[[str], Any] = str
    """Converts the text to the value."""
    choices: tuple[str, ...] = ()
    """The only accepted values."""
    letter: str = ""
    """The short spelling, without its dash."""
    has_underscores: bool = False
    """Whether the long spelling is accepted with underscores too."""
    variable: str = ""
    """The environment variable that overrides the default, such as PET_NNODES."""
    section: str = ""
    """The heading of the option's section."""
    repeatable: bool = False
    """Whether each use adds a value to a list."""
    count: str = ""
    """Number of values in argparse's notation ("?", "*", "+"). Empty: one."""
    is_positional: bool = False
    """Whether this is a positional argument, without an option name."""
    required: bool = False
    """Whether the option is required."""
    stored_as: str = ""
    """The attribute of the parsed arguments, if it differs from the name. Flags with the same attribute exclude each other."""
    const: Any = True
    """The value that a flag stores in the attribute."""
    hidden: bool = False
    """Whether the option is accepted but not shown."""
    is_key: bool = False
    """Whether it is a key of --set, and no option of its own."""
    more: str = ""
    """Markdown that docs/verbs.md adds after the help, such as a link."""

    @property
    def dest(self) -> str:
        return self.stored_as or self.name.replace("-", "_")

    @property
    def is_flag(self) -> bool:
        return not (self.metavar or self.choices or self.is_positional)

    @property
    def value(self) -> str:
        """The metavar in help and documentation; "" for a flag."""
        word = "|".join(self.choices) or self.metavar
        return f"{word} ..." if self.count in ("*", "+") else word

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every accepted spelling, the short one first; empty for a positional argument and for a key of --set."""
        if self.is_positional or self.is_key:
            return ()
        short = (f"-{self.letter}",) if self.letter else ()
        twin = (f"--{self.name.replace('-', '_')}",) if self.has_underscores and "-" in self.name else ()
        return (*short, f"--{self.name}", *twin)

    @property
    def in_messages(self) -> str:
        """The option or the key as messages name it."""
        return f"--set {self.name}" if self.is_key else f"--{self.name}"

    @property
    def shown_spellings(self) -> tuple[str, ...]:
        """The short and the long spelling, without the variant with underscores."""
        return tuple(spelling for spelling in self.spellings if not (spelling.startswith("--") and "_" in spelling))

    @property
    def unset(self) -> Any:
        """The value if neither the command line nor a variable gives one."""
        if self.is_flag and self.const is True:
            return bool(self.default)
        # A reader could change a list in a frozen row.
        return list(self.default) if isinstance(self.default, tuple) else self.default

    @property
    def shown_default(self) -> str:
        """The default in the form for help and documentation; "" if there is nothing to show."""
        if self.default_text or self.is_flag or self.default in (None, (), ""):
            return self.default_text
        return str(self.default)


@dataclass(frozen=True, slots=True)
class Verb:
    """The content of `paceline VERB --help` and of the verb's section in docs/verbs.md, and the grammar of its command line."""

    name: str
    """The verb's name after `paceline`."""
    about: str
    """One or two sentences about what the verb does."""
    examples: tuple[Example, ...]
    """Two command lines, and the effect of each."""
    options: tuple[Option, ...] = ()
    """The verb's own rows, without those that every verb has."""
    keys: tuple[Option, ...] = ()
    """The keys of its --set."""
    usage: str = ""
    """The forms of its command line, one per line, if the rows alone do not determine them."""
    operand: str = ""
    """The possible values of its first word as a metavar, if no row gives them."""
    script_place: int = 0
    """The position of the script among its words. Words after the script belong to the script. 0: it has no script."""
    passed_on: tuple[Option, ...] = ()
    """Rows of `paceline run` that it also accepts and passes on."""
    epilog: str = ""
    """The last lines of its help."""
    page: str = ""
    """Markdown that its section of docs/verbs.md has after `about`."""
    section_texts: Mapping[str, str] = field(default_factory=dict)
    """Section -> Markdown below its heading. The help shows it too."""
    notes: str = ""
    """Markdown at the end of its section of docs/verbs.md."""

    @property
    def rows(self) -> tuple[Option, ...]:
        """The verb's own rows, and the common rows that the verb does not define itself."""
        own = {row.name for row in self.options}
        return (*self.options, *(row for row in EVERY_VERB if row.name not in own))

    @property
    def sections(self) -> dict[str, tuple[Option, ...]]:
        """Section -> its rows without hidden ones, in the order of the first row of each section."""
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


def switch(name: str, help: str, **more: Any) -> Option:
    """A key of --set that is true or false."""
    values: dict[str, Any] = {"choices": ("true", "false"), "default": False, "default_text": "false"}
    return Option(name, help, kind="true".__eq__, is_key=True, **values, **more)


def section(title: str, *rows: Option) -> tuple[Option, ...]:
    """The rows with one heading."""
    return tuple(replace(row, section=title) for row in rows)


HELP = Option("help", "Print this help.", letter="h")
JSON = Option("json", "Print JSON instead of text.")
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
ENV = Option(
    "env",
    "A variable for every rank, with this shell's value where none is given. May be repeated.",
    "NAME[=VALUE]",
    default=(),
    repeatable=True,
)
RUN_DIR = Option("run-dir", "The directory below which recordings are.", "DIR", default_text=".paceline/runs")
RANKS = Option("rank", "Only these ranks: 3 or 3,8-11.", "LIST")
MODULE = Option("module", "The script is a module name, run as `python -m NAME`.", letter="m")
