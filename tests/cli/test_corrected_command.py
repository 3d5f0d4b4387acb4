"""An error's advice as the command that was typed, with that change."""

import shlex

import pytest

from paceline import cli
from paceline.cli.corrected_command import corrected


@pytest.mark.parametrize(
    ("typed", "advice", "expected"),
    [
        ("run --nproc-per-node two train.py", "--nproc-per-node 2", "run --nproc-per-node 2 train.py"),
        ("run --nproc-per-node=two train.py", "--nproc-per-node 2", "run --nproc-per-node 2 train.py"),
        ("run --nproc_per_node two train.py", "--nproc-per-node 2", "run --nproc-per-node 2 train.py"),
        ("run --nproc two train.py", "--nproc-per-node 2", "run --nproc-per-node 2 train.py"),
        (
            "run train.py --nproc-per-node two",
            "--nproc-per-node 2",
            "run --nproc-per-node 2 train.py --nproc-per-node two",
        ),
        (
            "run -m train --lr 'a b'",
            "paceline run --set store_port=PORT ...",
            "run -m --set store_port=PORT train --lr 'a b'",
        ),
        ("run --max-run 1 -- --odd.py", "--max-run 1h", "run --max-run 1h -- --odd.py"),
        ("run --hp a=1 --hp lr train.py", "paceline run --hp lr=VALUE ...", "run --hp a=1 --hp lr=VALUE train.py"),
        ("run --hp a=1 train.py", "paceline run --hp lr=2 ...", "run --hp a=1 --hp lr=2 train.py"),
        ("run --env A=key --max-run x train.py", "--max-run 12h", "run --env A=... --max-run 12h train.py"),
        ("run --env A=key train.py", "paceline run --hosts a,b --env ...", "run --env A=... --hosts a,b train.py"),
        (
            "run --set base_dir=x --set opt_ml=true train.py",
            "leave --set opt_ml=true out",
            "run --set base_dir=x train.py",
        ),
        ("submit --nproc 2x train.py", "paceline run --nproc-per-node 2 ...", "submit --nproc-per-node 2 train.py"),
        (
            "submit --option a=1 --option partion=x train.py",
            "--option partition=x instead of --option partion=x",
            "submit --option a=1 --option partition=x train.py",
        ),
        ("submit --option a=1 --option b=x train.py", "leave --option b=x out", "submit --option a=1 train.py"),
        (
            "run --max-run 1h trian.py --lr 'a b'",
            "train.py instead of trian.py",
            "run --max-run 1h train.py --lr 'a b'",
        ),
        ("run -m train.py --lr 1", "leave -m out", "run train.py --lr 1"),
        ("submit --hosts a train.py", "--option python=p", "submit --hosts a --option python=p train.py"),
        ("logs --stdout --stderr", "leave --stderr out", "logs --stdout"),
        ("logs r-1 --tail x", "--tail 20", "logs r-1 --tail 20"),
        ("bench all_reduce -b 8x", "-b 1M", "bench all_reduce -b 1M"),
        ("bench step --nproc-per-node x train.py", "--nproc-per-node 2", "bench step --nproc-per-node 2 train.py"),
        ("why --fail-on n1 --fail-on any", "--fail-on N01", "why --fail-on n1 --fail-on any --fail-on N01"),
    ],
)
def test_an_option_takes_the_place_of_the_one_that_it_corrects(typed, advice, expected):
    assert told(typed, advice) == f"paceline {expected}"


@pytest.mark.parametrize(
    ("typed", "advice", "expected"),
    [
        (
            "run train.py",
            "umask 0027; paceline run --set run_dir_mode=0750 ...",
            "umask 0027; paceline run --set run_dir_mode=0750 train.py",
        ),
        (
            "bench --rehearse train.py",
            "PACELINE_HOME=/a paceline bench ...",
            "PACELINE_HOME=/a paceline bench --rehearse train.py",
        ),
        ("run --local-hosts 2 train.py", "sudo paceline run ...", "sudo paceline run --local-hosts 2 train.py"),
    ],
)
def test_what_stands_before_the_command_stays(typed, advice, expected):
    assert told(typed, advice) == expected


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("run train.py", "paceline ps --all"),
        ("run train.py", "take one of these"),
        ("run it's.py", "--max-run 1h if it's long"),
        ("run train.py", "leave --set opt_ml=true out"),
        ("run train.py", "--such-an-option 3"),
        ("plan train.py", "--measured-step-ms MS, or a training script to trace"),
        ("run --job job.json", "--gradients direct"),
        ("run train.py", 'paceline run --nproc-per-node "$(python -c 1)" ...'),
    ],
)
def test_any_other_advice_stays_as_it_is(typed, advice):
    assert told(typed, advice) == advice


def told(typed: str, advice: str) -> str:
    verb, *argv = typed.split() if "it's" in typed else shlex.split(typed)
    module = cli.verb_module(verb)
    return corrected(advice, argv, module.form(argv) if hasattr(module, "form") else module.VERB)
