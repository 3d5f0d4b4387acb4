"""The documentation says what there is: every verb, event and target, links that lead somewhere."""

import re
from pathlib import Path

import pytest

from paceline import cli
from paceline.cli.programs.write_docs import verbs_text
from paceline.option import EVERY_VERB

FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


def test_every_verb_has_a_section_and_a_line_in_the_readme(repository):
    sections = verb_sections(repository)
    readme = (repository / "README.md").read_text()
    for verb in cli.all_verbs():
        assert verb in sections, f"docs/verbs.md has no section '## paceline {verb}'"
    listed = ", ".join(f"`{verb}`" for verb in cli.all_verbs())
    assert listed in readme.replace("\n", " "), "README.md lists other verbs, or in another order"
    assert set(sections) == set(cli.all_verbs())


def test_the_page_of_verbs_is_the_one_that_is_made_from_their_rows(repository):
    assert (repository / "docs/verbs.md").read_text() == verbs_text(), "run `make docs`"


def test_a_table_in_the_text_of_a_verb_stays_a_table():
    text = verbs_text()
    assert "\n| Key | Does |\n|---|---|\n| `s` |" in text and "| |---" not in text


@pytest.mark.parametrize("verb", cli.all_verbs())
def test_every_option_is_documented(repository, verb):
    section = verb_sections(repository)[verb].replace("\\|", "|")
    for row in cli.verb_module(verb).VERB.rows:
        if row not in EVERY_VERB and not row.hidden:
            assert f"`{row.value}`" in section if row.is_positional else f"`--{row.name}`" in section


@pytest.mark.parametrize("verb", cli.all_verbs())
def test_help_begins_with_two_examples_and_says_what_the_verb_does(verb):
    shown = cli.verb_module(verb).VERB
    assert shown.name == verb and shown.about
    assert len(shown.examples) == 2
    assert all(command.startswith(f"paceline {verb}") for command, _ in shown.examples)


def test_links_lead_somewhere(repository):
    broken = []
    for page in pages(repository):
        for match in LINK.finditer(without_code(page.read_text())):
            target = match["target"]
            if "://" not in target and not leads_somewhere(page, target):
                broken.append(f"{page.relative_to(repository)}: {target}")
    assert not broken, "\n".join(broken)


def test_files_that_the_documentation_names_exist(repository):
    missing = []
    for page in pages(repository):
        for name in re.findall(r"`((?:examples|docs|bench|tests|src)/[\w./-]+)`", page.read_text()):
            if not (repository / name).exists():
                missing.append(f"{page.relative_to(repository)}: {name}")
    assert not missing, "\n".join(missing)


def test_every_event_of_a_recording_is_documented(repository):
    page = (repository / "docs/recording.md").read_text()
    written = set()
    for path in (path for room in ("launch", "parts") for path in (repository / "src/paceline" / room).rglob("*.py")):
        written |= set(re.findall(r"\.(?:record|event|on_event)\(\s*\"(\w+)\"", path.read_text()))
    assert {"run_started", "rank_exited"} <= written
    assert not [event for event in sorted(written) if f"`{event}`" not in page]


def test_make_targets_that_the_documentation_names_exist(repository):
    makefile = (repository / "Makefile").read_text()
    for page in (repository / "README.md", repository / "CONTRIBUTING.md", repository / "docs/tutorial.md"):
        code = "\n".join(
            [
                *re.findall(r"`([^`\n]+)`", page.read_text()),
                *(match["text"] for match in FENCE.finditer(page.read_text())),
            ]
        )
        for target in re.findall(r"^make ([a-z][\w.-]*)", code, re.MULTILINE):
            # A pattern rule makes every release of torch.
            of_a_pattern = re.escape(f"{target.partition('-')[0]}-%")
            assert re.search(rf"^({re.escape(target)}|{of_a_pattern}):", makefile, re.MULTILINE), (
                f"{page.name}: make {target}"
            )


def verb_sections(repository: Path) -> dict[str, str]:
    """Verb -> its section of docs/verbs.md."""
    parts = re.split(r"^## paceline ([\w-]+)$", (repository / "docs/verbs.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def pages(repository: Path) -> list[Path]:
    return sorted([*repository.glob("*.md"), *(repository / "docs").rglob("*.md")])


def without_code(text: str) -> str:
    return FENCE.sub("", text)


def leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists():
        return False
    return not anchor or anchor in {anchor_of(match["title"]) for match in HEADING.finditer(file.read_text())}


def anchor_of(title: str) -> str:
    """As code hosts make it: small letters, dashes for spaces, no punctuation."""
    return re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")


def test_each_promise_of_the_security_page_has_a_test_that_is_there(repository):
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+`) \|$", (repository / "SECURITY.md").read_text(), flags=re.MULTILINE)
    paths = [path for row in rows for path in re.findall(r"`(tests/[^`]+)`", row)]
    assert len(rows) > 10 and paths
    assert not [path for path in paths if not (repository / path).exists()]
