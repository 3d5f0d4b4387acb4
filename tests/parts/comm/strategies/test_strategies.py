"""Every strategy against its contract, on 2 and 4 ranks that say they are on 1 to 4 hosts: real processes, started once a suite."""

import functools
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient
from ports import free_port

HERE = Path(__file__).parents[1]
RANKS = 4
SECONDS = 110

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(SECONDS + 10)]


def titles(suite):
    """What a suite will report, found without starting it."""
    sys.path.insert(0, str(HERE))
    try:
        specification = importlib.util.spec_from_file_location(suite, HERE / f"{suite}.py")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(HERE))
    return [f"{case.__name__}[{name}, {place}]" for case, name, place in module.cases()]


def outcomes_of(suite, environment, directory):
    """{case: its errors by rank} of 4 ranks that ran a suite, and what they printed."""
    port = str(free_port())
    results = [directory / f"{suite}{rank}.jsonl" for rank in range(RANKS)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / "run_strategies.py"), suite, port, str(rank), str(results[rank])],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        printed = [rank.communicate(timeout=patient(SECONDS))[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        printed = ["the ranks did not end in time"] * RANKS
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    found = {}
    for rank, path in enumerate(results):
        for line in path.read_text().splitlines() if path.exists() else ():
            said = json.loads(line)
            found.setdefault(said["case"], {})[rank] = said["error"]
    return {"found": found, "printed": printed, "codes": [rank.returncode for rank in ranks]}


@pytest.fixture(scope="module")
def outcomes(make_user_environment, tmp_path_factory):
    """Of a suite, which is run when it is first asked for."""

    @functools.cache
    def outcomes_of_suite(suite):
        directory = tmp_path_factory.mktemp(suite)
        return outcomes_of(suite, make_user_environment(directory / "state"), directory)

    return outcomes_of_suite


@pytest.mark.parametrize("title", titles("strategy_contract"))
def test_a_strategy_keeps_its_contract(outcomes, title):
    check(outcomes("strategy_contract"), title)


@pytest.mark.parametrize("title", titles("strategy_ddp"))
def test_what_ddp_offers_works_under_a_strategy(outcomes, title):
    check(outcomes("strategy_ddp"), title)


@pytest.mark.parametrize("title", titles("strategy_convergence"))
def test_training_ends_where_the_docstring_says(outcomes, title):
    check(outcomes("strategy_convergence"), title)


@pytest.mark.parametrize("suite", ["strategy_contract", "strategy_ddp", "strategy_convergence"])
def test_the_ranks_end_well_and_print_nothing(outcomes, suite):
    found = outcomes(suite)
    assert found["codes"] == [0] * RANKS and not "".join(found["printed"]), found["printed"]


def check(outcomes, title):
    found = outcomes["found"].get(title, {})
    errors = "\n".join(f"rank {rank}: {error}" for rank, error in found.items() if error)
    assert not errors, errors
    assert len(found) == RANKS, f"only ranks {sorted(found)} came here; {outcomes['printed']}"
