"""K19: a rank that leaves the training loop alone, with success."""

import pytest

HEAD = "import sys\nimport torch.distributed as dist\ndist.init_process_group()\n"


@pytest.mark.parametrize(
    "text",
    [
        "for batch in loader:\n    loss.backward()\n    if loss.isnan():\n        sys.exit()",
        "while True:\n    for batch in loader:\n        if not batch:\n            exit(0)\n        loss.backward()",
        "def train():\n    for batch in loader:\n        loss.backward()\n        if done: quit()",
        "while True:\n    try:\n        next(loader)\n    except StopIteration:\n        sys.exit()\n    loss.backward()",
    ],
)
def test_leaving_alone_with_success_is_reported(found, job, text):
    (finding,) = found("K19", job(HEAD + text, ranks_per_host=2))
    assert "ends with success" in finding.what


@pytest.mark.parametrize(
    "text",
    [
        "for batch in loader:\n    loss.backward()\n    if loss.isnan():\n        sys.exit(1)",
        "for batch in loader:\n    loss.backward()\n    dist.all_reduce(flag)\n    if flag:\n        sys.exit()",
        "for batch in loader:\n    loss.backward()\nsys.exit()",
        "for name in names:\n    if name:\n        sys.exit()",
        "for batch in loader:\n    loss.backward()\n    sys.exit()",
        # Every rank leaves at the same step.
        "for step, batch in enumerate(loader):\n    loss.backward()\n    if step == 100:\n        sys.exit()",
        "step = 0\nfor batch in loader:\n    loss.backward()\n    step += 1\n    if args.steps and step >= args.steps:\n        sys.exit()",
        "from torch.distributed import all_reduce\n"
        "for batch in loader:\n    loss.backward()\n    all_reduce(flag)\n    if flag: sys.exit()",
        "def agree(flag):\n    dist.all_reduce(flag)\n    return flag\n"
        "for batch in loader:\n    loss.backward()\n    if agree(flag): sys.exit()",
    ],
)
def test_an_exit_of_all_ranks_or_with_a_code_is_not(found, job, text):
    assert not found("K19", job(HEAD + text, ranks_per_host=2))


def test_one_rank_may_leave(found, job):
    text = HEAD + "for batch in loader:\n    loss.backward()\n    if loss.isnan():\n        sys.exit()"
    assert not found("K19", job(text, ranks_per_host=1))


TRAINS = "for batch in loader:\n    loss.backward()\n"


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit()", "os._exit(0)", "quit()"])
@pytest.mark.parametrize(
    "handler",
    [
        "def leave(number, frame):\n    {end}\nsignal.signal(signal.SIGTERM, leave)\n",
        "def leave(*_):\n    if model:\n        save(model)\n    {end}\nsignal.signal(signal.SIGUSR1, handler=leave)\n",
        "signal.signal(signal.SIGTERM, lambda *_: {end})\n",
    ],
)
def test_a_handler_that_leaves_with_success_is_reported(found, job, handler, end):
    text = "import os, signal\n" + HEAD + handler.format(end=end) + TRAINS
    (finding,) = found("K19", job(text, ranks_per_host=2))
    assert "gets this signal" in finding.what


@pytest.mark.parametrize(
    "text",
    [
        "def leave(*_):\n    sys.exit(143)\nsignal.signal(signal.SIGTERM, leave)\n" + TRAINS,
        "def leave(*_):\n    dist.all_reduce(flag)\n    sys.exit(0)\nsignal.signal(signal.SIGTERM, leave)\n" + TRAINS,
        "def leave(*_):\n    sys.exit(0)\nsignal.signal(signal.SIGTERM, leave)\n",
        "def main(*_):\n    sys.exit(0)\n" + TRAINS,
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + TRAINS,
    ],
)
def test_another_handler_is_not(found, job, text):
    assert not found("K19", job("import os, signal\n" + HEAD + text, ranks_per_host=2))
