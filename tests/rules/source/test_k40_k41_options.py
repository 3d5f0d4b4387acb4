"""K40 and K41: options that the script demands and nobody passes, and the other way round."""

import pytest

from paceline.findings import Severity
from paceline.rules.job_facts import SourceFile

PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs', type=int, default=1)\n"
SIZE = "p.add_argument('-b', '--train-batch-size', type=int, default=32)\n"
STRICT, LENIENT = "args = p.parse_args()\n", "args, _ = p.parse_known_args()\n"


@pytest.mark.parametrize("name", ["--local_rank", "--local-rank"])
def test_a_demanded_local_rank(found, job, name):
    (finding,) = found("K40", job(PARSER + f"p.add_argument({name!r}, type=int, required=True)\n" + STRICT))
    assert finding.line == 4 and "LOCAL_RANK" in finding.next and finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("p.add_argument('--local_rank', type=int, default=0)\n", {}),
        ("p.add_argument('--local_rank', type=int, required=True)\n", {"arguments": ("--local_rank=0",)}),
        ("p.add_argument('--local_rank', type=int, required=True)\n", {"hyperparameters": {"local_rank": 0}}),
        ("p.add_argument('--data', required=True)\n", {}),
        (
            "import os, sys\nsys.argv += ['--local_rank', os.environ['LOCAL_RANK']]\np.add_argument('--local_rank', required=True)\n",
            {},
        ),
        ("import os\nif 'LOCAL_RANK' not in os.environ:\n    p.add_argument('--local_rank', required=True)\n", {}),
        ("p.add_argument('--local_rank', required=True)\np.parse_args(['--local_rank', '0'])\n", {}),
    ],
)
def test_a_local_rank_that_is_there_or_not_needed(found, job, text, fields):
    assert not found("K40", job(PARSER + text + STRICT, **fields))


@pytest.mark.parametrize(
    ("end", "hyperparameters", "severity", "next"),
    [
        (LENIENT, {"train-batch_size": 64}, Severity.WARNING, "--train-batch-size is there"),
        (STRICT, {"train_batch_size": 64}, Severity.ERROR, "--train-batch-size is there"),
        (STRICT, {"warmup": 3}, Severity.ERROR, "add_argument('--warmup'), or leave the hyperparameter out"),
    ],
)
def test_a_hyperparameter_without_an_option(found, job, end, hyperparameters, severity, next):
    (finding,) = found("K41", job(PARSER + SIZE + end, hyperparameters=hyperparameters))
    assert (finding.severity, finding.next, finding.line) == (severity, next, 5)


@pytest.mark.parametrize(
    ("text", "hyperparameters"),
    [
        (PARSER + SIZE + STRICT, {"epochs": 3, "train-batch-size": 64}),
        # A unique beginning.
        (PARSER + SIZE + LENIENT, {"epoch": 3}),
        # Nothing that resembles it: the script may pass it on.
        (PARSER + SIZE + LENIENT, {"warmup": 3}),
        (PARSER + SIZE + LENIENT, {}),
        ("import json, os\nhps = json.loads(os.environ['SM_HPS'])\n" + PARSER + LENIENT, {"epochss": 1}),
        ("import fire\nfire.Fire(train)\n", {"epochss": 1}),
        (
            "import argparse\np = argparse.ArgumentParser()\nfor name in names:\n    p.add_argument(name)\n" + LENIENT,
            {"epochss": 1},
        ),
        ("from transformers import HfArgumentParser\nimport argparse\n", {"epochss": 1}),
    ],
)
def test_a_hyperparameter_that_may_be_read(found, job, text, hyperparameters):
    assert not found("K41", job(text, hyperparameters=hyperparameters))


@pytest.mark.parametrize(
    ("text", "hyperparameters"),
    [
        ("p.add_argument('-bs', '--size')\n", {"size": 1}),
        ("p.add_argument('--size', '--bs')\n", {"bs": 1}),
        # A name of one letter is passed with one dash.
        ("p.add_argument('-b', type=int)\n", {"b": 1}),
        ("p.add_argument('--amp', action=argparse.BooleanOptionalAction)\n", {"no-amp": 1}),
        ("p.add_argument('rest', nargs=argparse.REMAINDER)\n", {"size": 1}),
        ("p.add_argument('--weight:decay')\n", {"weight:decay": 1}),
        ("for name in names:\n    p.add_argument('--' + name)\n", {"size": 1}),
        ("for name in names:\n    p.add_argument('--opt-%s' % name)\n", {"opt-size": 1}),
        ("for name in names:\n    p.add_argument('--{}'.format(name))\n", {"size": 1}),
        ("add = p.add_argument\nadd('--size')\n", {"size": 1}),
        ("import theirs\ntheirs.add_to(p)\n", {"size": 1}),
        ("import deepspeed\np = deepspeed.add_config_arguments(parser=p)\n", {"size": 1}),
        ("p = argparse.ArgumentParser(parents=[theirs])\n", {"size": 1}),
        ("from theirs import q\nq.parse_args()\n", {"size": 1}),
        ("p.parse_args([])\n", {"size": 1}),
    ],
)
def test_an_option_is_found_however_it_is_written_or_nothing_is_said(found, job, text, hyperparameters):
    assert not found("K41", job(PARSER + text + STRICT, hyperparameters=hyperparameters))


def test_the_file_that_reads_the_arguments_has_the_finding(found, job):
    imported = (
        SourceFile("options.py", PARSER + STRICT),
        SourceFile("more.py", "def add(p):\n    p.add_argument('--lr')\n"),
    )
    (finding,) = found("K41", job("import options\n", hyperparameters={"size": 1, "lr": 1}, imported=imported))
    assert finding.file == "options.py" and "--size" in finding.what
