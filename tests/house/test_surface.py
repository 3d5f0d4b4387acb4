"""What the command line offers is frozen: CONTRIBUTING.md, "A wish". surface.txt has every verb, option, and usage or engine code.

A line of surface.txt goes when what it names goes. A line is added only by an issue that names it. A code that goes stays in the list as
"gone CODE": it is never given to anything else. `python tests/house/test_surface.py` prints what there is now.
"""

from pathlib import Path

from paceline.cli import all_verbs, verb_module
from paceline.cli.job.option_tables import TORCHRUN
from paceline.rules import checks_of_parts, discover, pages

LIST = Path(__file__).parent / "surface.txt"


def listed() -> set[str]:
    return {line for line in LIST.read_text().splitlines() if line and not line.startswith("#")}


def offered() -> set[str]:
    """One line for each verb, each option of a verb, and each code that is no cause and no check."""
    return {
        *(f"verb {name}" for name in all_verbs()),
        *(
            f"{name} --{row.name}"
            for name in all_verbs()
            for row in verb_module(name).VERB.options
            if not row.is_positional
        ),
        *(f"code {code}" for code in own_codes()),
    }


def own_codes() -> set[str]:
    """Codes that are neither a cause nor a check: those grow by files."""
    rules = (rule for folder in ("checks", "source", "hosts", "causes") for rule in discover(folder))
    return set(pages()) - {rule.code for rule in (*rules, *checks_of_parts())}


def test_nothing_is_offered_that_is_not_listed():
    new = sorted(offered() - listed())
    assert not new, f"a wish is a part, a key of the job file, or no (CONTRIBUTING.md): {new}"


def test_what_is_no_longer_offered_has_left_the_list():
    left = sorted(line for line in listed() - offered() if not line.startswith("gone "))
    assert not left, f"remove these lines from {LIST.name}; a code becomes 'gone CODE': {left}"


def test_a_code_that_has_gone_is_never_given_to_anything_else():
    gone = {line.removeprefix("gone ") for line in listed() if line.startswith("gone ")}
    assert not gone & set(pages())


def test_the_options_of_run_are_few():
    sections = verb_module("run").VERB.sections
    kernel = sections.pop("paceline's own")
    torchrun = sections.pop("as in torchrun")
    assert len(kernel) <= 14 and [row.name for row in torchrun] == [row.name for row in TORCHRUN]
    assert all(title.startswith("of the part ") for title in sections)
    assert sum(map(len, sections.values())) <= 12


if __name__ == "__main__":
    print("\n".join(sorted(offered())))
