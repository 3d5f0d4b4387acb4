"""The documentation site has every page, its made pages are up to date, and commands in it use options that their verb has."""

import itertools
import re
from pathlib import Path

from paceline import cli
from paceline.cli.programs.write_docs import codes_text, schemas_text

README_WORDS = 700
COMMON_FLAGS = {"--help", "--json", "--color"}

FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_readme_is_one_page(repository):
    assert len((repository / "README.md").read_text().split()) <= README_WORDS


def test_every_page_is_in_the_site(repository):
    docs = repository / "docs"
    listed = {"index.md"}
    for page in docs.rglob("*.md"):
        for entries in re.findall(
            r"^:::\{toctree\}\n(?::.*\n)*\n(.*?)^:::$", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            listed |= {f"{entry}.md" for entry in entries.split()}
    assert {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} == listed


def test_what_the_pages_of_codes_and_schemas_say_is_up_to_date(repository):
    assert (repository / "docs/codes.md").read_text() == codes_text(), "run `make docs`"
    assert (repository / "docs/schemas.md").read_text() == schemas_text(), "run `make docs`"


def test_commands_in_the_documentation_use_options_that_exist(repository):
    wrong = []
    for page in pages(repository):
        for verb, flags in typed_options(page.read_text()):
            # Verbs that start a run pass its options on.
            passed_on = options_of(repository, "run") if verb in ("submit", "bench") else set()
            unknown = flags - options_of(repository, verb) - passed_on - COMMON_FLAGS
            wrong += [f"{page.relative_to(repository)}: paceline {verb} {flag}" for flag in sorted(unknown)]
    assert not wrong, "\n".join(wrong)


def options_of(repository: Path, verb: str) -> set[str]:
    """The options that docs/verbs.md has under a verb; other tests hold that page to the parser."""
    parts = re.split(r"^## paceline ([\w-]+)$", (repository / "docs/verbs.md").read_text(), flags=re.MULTILINE)
    return set(re.findall(r"`(--[a-z0-9-]+)", parts[parts.index(verb) + 1]))


def typed_options(text: str) -> list[tuple[str, set[str]]]:
    """Verb and options of each command in a block of code; what stands after the script or the module is its own."""
    found = []
    for match in FENCE.finditer(text):
        for line in match["text"].replace("\\\n", " ").splitlines():
            words = line.removeprefix("$ ").split("#")[0].split()
            if words[:1] == ["paceline"] and len(words) > 1 and words[1] in cli.all_verbs():
                own = itertools.takewhile(lambda word: word != "-m" and not word.endswith(".py"), words[2:])
                found.append((words[1], {word.partition("=")[0] for word in own if word.startswith("--")}))
    return found


def pages(repository: Path) -> list[Path]:
    return sorted([*repository.glob("*.md"), *(repository / "docs").rglob("*.md")])
