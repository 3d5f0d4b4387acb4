"""Backend `paceline` does what backend gloo does, case by case (conformance.py); gloo itself shows that the cases ask for
the right thing.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import conformance
import pytest
from ranks import Ranks, environment_of_ranks
from variants import all_but

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(300)]

CASES = conformance.load()
# What our transports carry, so that it matters how ranks are numbered over hosts.
CARRIED = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "different_collectives", "functional_collectives")


@dataclass(frozen=True)
class Setting:
    """A backend on some hosts ("aab": two ranks on one, one on another). `crossover`: bytes from which our own transports carry."""

    name: str
    backend: str
    hosts: str
    crossover: int = 0
    missing: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    @property
    def cases(self) -> list[str]:
        return [
            name
            for name, case in CASES.items()
            if not case.needs & set(self.missing) and (not self.only or name.startswith(self.only))
        ]


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("gloo", "gloo", "aa", missing=("more_than_gloo",)),
        Setting("one_host", "paceline", "aa"),
        Setting("two_hosts_of_two", "smddp", "aabb", crossover=64 << 10),
        Setting("ranks_dealt_to_hosts_in_turn", "paceline", "abab", only=CARRIED),
        Setting("uneven_hosts", "paceline", "aab"),
    )
}
PAIRS = [(setting.name, case) for setting in SETTINGS.values() for case in setting.cases]


# gloo shows that the cases are right; two hosts of two are less than the uneven ones.
WIDE = ("gloo", "two_hosts_of_two")


@pytest.fixture(scope="module")
def errors(
    make_user_environment: Callable[[Path], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, str]]:
    """Case -> what failed, on any rank; the ranks of a setting are started once."""

    @cache
    def errors_of(name: str) -> dict[str, str]:
        setting = SETTINGS[name]
        directory = tmp_path_factory.mktemp(name)
        environment = environment_of_ranks(make_user_environment(directory))
        ranks = Ranks("run_conformance.py", setting.backend, setting.hosts, directory, environment)
        listed = directory / "cases"
        listed.write_text("\n".join(setting.cases))
        ranks.start(str(setting.crossover), str(listed))
        ranks.wait(280)
        found = dict.fromkeys(setting.cases, "never ran")
        for index, rank in enumerate(ranks.ranks):
            for line in map(json.loads, rank.left.read_text().splitlines()):
                text = f"rank {index}: {line['error']}\n" if line["error"] else ""
                found[line["case"]] = found[line["case"]].removeprefix("never ran") + text
        return found

    return errors_of


@pytest.mark.parametrize(("setting", "case"), all_but({pair for pair in PAIRS if pair[0] not in WIDE}, PAIRS))
def test_the_backend_conforms(errors: Callable[[str], dict[str, str]], setting: str, case: str) -> None:
    assert not errors(setting)[case]
