"""Rules and the pages of their codes.

The folders checks/ (of a job), source/ (of a file), hosts/ and causes/ are the registry: a file there is a rule, and has its page. Parts
have checks of a job too. pages/ has the other pages, one file a code: usage and input (U), plans (P), exchange and bench (X), engines (E),
restarts (F). A page is a title, then four sections: what it means, why it matters, what to do, source. Such a code is a kind of trouble
that needs more than the four parts of an error. Codes are never used twice; gone_codes.py has those that have gone.
"""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

from paceline.findings import Cause, Rule

_PAGES = Path(__file__).parent / "pages"
_FOLDERS = ("checks", "source", "hosts", "causes")
_CODE = re.compile(r"[A-Z]\d\d")


def discover(folder: str) -> tuple[Any, ...]:
    """The rules of a folder here, in order of code: the name RULE of every file there, a Rule or a Cause."""
    package = importlib.import_module(f"{__name__}.{folder}")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))
    rules = (importlib.import_module(f"{package.__name__}.{name}").RULE for name in names)
    return tuple(sorted(rules, key=lambda rule: rule.code))


def all_causes() -> tuple[Cause, ...]:
    """Every cause for which a job in trouble is examined."""
    return discover("causes")


def checks_of_parts() -> tuple[Rule, ...]:
    """The checks of a job that the parts have."""
    # The page of another rule is found without a look at the parts.
    from paceline.part import parts

    return tuple(check for part in parts() for check in part.checks())


def pages() -> dict[str, str]:
    """The page of every code: from pages/, and from the rules."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(_PAGES.glob("*.txt"))}
    rules = (*(rule for folder in _FOLDERS for rule in discover(folder)), *checks_of_parts())
    return texts | {rule.code: rule.page for rule in rules}


def page_of(code: str) -> str | None:
    """The page of one code, without a look at the others. None: there is none."""
    if not _CODE.fullmatch(code):
        return None
    file = _PAGES / f"{code}.txt"
    if file.exists():
        return file.read_text(encoding="utf-8")
    for folder in _FOLDERS:
        for rule in (Path(__file__).parent / folder).glob(f"{code.lower()}_*.py"):
            found: str = importlib.import_module(f"{__name__}.{folder}.{rule.stem}").RULE.page
            return found
    return next((check.page for check in checks_of_parts() if check.code == code), None)
