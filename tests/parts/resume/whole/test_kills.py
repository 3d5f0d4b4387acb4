"""Ten kills by time and by phase, and scripts that are refused: each line equal to torchrun's, or the code. `make resume` does 250."""

import importlib.util
import random

import pytest
from kills import CASES, Case, Launch, Plan, as_json, run_with_kills
from variants import all_but

pytestmark = [pytest.mark.process, pytest.mark.resume, pytest.mark.timeout(240)]
SEED = 16


def by_time(*victims, within_seconds=0.6):
    rng = random.Random(f"{SEED} {victims}")
    return tuple(Plan("time", victim, rng.uniform(0.0, within_seconds)) for victim in victims)


def phases(*names):
    return tuple(Plan(name) for name in names)


KILLS = {
    "three ranks": (Launch(Case("full"), ranks=3), by_time("rank", "all", "rank")),
    "loader workers": (Launch(Case("full", ("--workers", "2"))), by_time("worker", "rank")),
    "two local hosts": (Launch(Case("full"), hosts=2), by_time("host", "rank")),
    "step and evaluation": (
        # Long enough that a fast machine is not done before it is looked at.
        Launch(Case("full", ("--epochs", "40")), slow_seconds=0.0),
        phases("optimizer.step", "evaluation"),
    ),
    "copy": (Launch(Case("full", ("--hidden", "700", "--batches", "16", "--epochs", "15"))), phases("copy", "copy")),
    "twice in a restart": (Launch(Case("full"), ranks=3), phases("prologue", "restored")),
    "an iterator by hand": (Launch(Case("while_next"), ranks=3), by_time("rank")),
    "a stream with workers": (Launch(Case("iterable", ("--workers", "2"))), by_time("all")),
    "books": (Launch(Case("bookkeeping"), ranks=3), by_time("rank", "all")),
    "its own checkpoint": (Launch(Case("early_stopping")), by_time("rank", "rank")),
    "error feedback": (Launch(Case("strategies", options=("--gradients", "direct+int8")), ranks=3), by_time("rank")),
    "shards": (Launch(Case("fsdp"), ranks=3), by_time("rank")),
    "folds": (Launch(Case("folds"), ranks=3), by_time("rank")),
}
# Their loops are of the same kinds as those of others, or tests/process has a kill of the same kind.
WIDE = (
    "books",
    "folds",
    "twice in a restart",
    "two local hosts",
    "shards",
    "its own checkpoint",
    "a stream with workers",
    "error feedback",
)

# One of each code, each Trainer, and workers that are no forks.
REFUSED = [case for case in CASES if case.refused and (not case.argv or "--start-method" in case.argv)]


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return tmp_path_factory.mktemp("references")


@pytest.mark.parametrize("name", all_but(KILLS.keys() - WIDE, KILLS))
def test_what_was_killed_writes_what_torchrun_writes(name, references, tmp_path, user_environment):
    launch, plans = KILLS[name]
    outcome = run_with_kills(launch, plans, references, tmp_path / "run", user_environment, seed=SEED)
    assert outcome.verdict == "equal", as_json(outcome)
    assert not outcome.missed, as_json(outcome)


@pytest.mark.parametrize(
    "case",
    all_but([case for case in REFUSED if case.script in ("hf_trainer", "cycle", "full")], REFUSED),
    ids=lambda case: case.name,
)
def test_a_loop_of_a_trainer_is_refused_by_its_code_and_goes_on(case, references, tmp_path, user_environment):
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed")
    launch = Launch(case, slow_seconds=0.0)
    outcome = run_with_kills(launch, (), references, tmp_path / "run", user_environment, seed=SEED)
    assert outcome.verdict == f"refused {case.refused}", as_json(outcome)


def test_without_resume_a_kill_is_seen_to_cost_steps(references, tmp_path, user_environment):
    launch = Launch(Case("full"), options=("--max-restarts", "1"))
    outcome = run_with_kills(
        launch, [Plan("time", "rank", 0.5)], references, tmp_path / "run", user_environment, seed=SEED
    )
    assert outcome.verdict == "wrong" and "made again after one kill" in outcome.complaints[0], as_json(outcome)
