"""Rules and the pages behind their codes. The folders checks/ and causes/ are the registry: a file there is a rule."""

import importlib
import pkgutil
from typing import Any

from paceline.findings import Cause


def discover(folder: str) -> tuple[Any, ...]:
    """The rules of `checks` or `causes`, in order of code: the name RULE of every file there, a Rule or a Cause."""
    package = importlib.import_module(f"{__name__}.{folder}")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))
    rules = (importlib.import_module(f"{package.__name__}.{name}").RULE for name in names)
    return tuple(sorted(rules, key=lambda rule: rule.code))


def all_causes() -> tuple[Cause, ...]:
    """Every cause that a job in trouble is judged by."""
    return discover("causes")


def pages() -> dict[str, str]:
    """The page of every code: those of usage, planning, exchange, engines, transfers and estimators, and those that the rules carry."""
    from paceline.rules import engines, engines_ray, engines_ssh, estimating, exchange, planning, transfers, usage

    return (
        usage.PAGES
        | planning.PAGES
        | exchange.PAGES
        | engines.PAGES
        | engines_ray.PAGES
        | engines_ssh.PAGES
        | transfers.PAGES
        | estimating.PAGES
        | {rule.code: rule.page for folder in ("checks", "causes") for rule in discover(folder)}
    )
