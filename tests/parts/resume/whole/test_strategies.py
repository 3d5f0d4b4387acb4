"""Each way to exchange gradients, with a kill on three ranks: the steps afterwards are those of an undisturbed run, bit for bit."""

import random

import pytest
from kills import GRADIENTS, Case, Launch, Plan, as_json, run_with_kills

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(240)]
SEED = 17
PER_STEP = tuple(name for name in GRADIENTS if "local_sgd" in name)
CASES = (
    # A model for each strategy.
    Case("strategies", ("--use", *(name for name in GRADIENTS if name not in PER_STEP), "--hook", "int8", "powersgd")),
    pytest.param(Case("strategies", ("--use", *PER_STEP)), marks=pytest.mark.wide),
    pytest.param(Case("strategies", ("--backend", "paceline")), marks=pytest.mark.wide),
    pytest.param(Case("strategies", ("--backend", "smddp")), marks=pytest.mark.wide),
    pytest.param(Case("strategies", options=("--gradients", "hierarchical+int8")), marks=pytest.mark.wide),
    # On two ranks, every choice that `auto` may make gives the same bits.
    pytest.param(Case("strategies", options=("--gradients", "auto"), ranks=2), marks=pytest.mark.wide),
)


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return tmp_path_factory.mktemp("references")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_after_a_kill_gradients_are_exchanged_as_before(case, references, tmp_path, user_environment):
    plan = Plan("time", "rank", random.Random(f"{SEED} {case.name}").uniform(0.0, 0.6))
    launch = Launch(case, ranks=case.ranks or 3)
    outcome = run_with_kills(launch, [plan], references, tmp_path / "run", user_environment, seed=SEED)
    assert outcome.verdict == "equal" and outcome.kills, as_json(outcome)


def test_a_training_loop_inside_a_loop_over_a_data_loader_is_refused(references, tmp_path, user_environment):
    case = Case("strategies", ("--use", "ring", "direct", "--nested", "--epochs", "1"), refused="F13")
    outcome = run_with_kills(
        Launch(case, slow_seconds=0.0), (), references, tmp_path / "run", user_environment, seed=SEED
    )
    assert outcome.verdict == "refused F13", as_json(outcome)
    assert "the training loop is inside a loop over a data loader" in outcome.err
