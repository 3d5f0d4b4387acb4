"""K19: a rank that leaves the training loop alone, with success."""

import pytest

HEAD = "import sys\nimport torch.distributed as dist\ndist.init_process_group()\n"


@pytest.mark.parametrize(
    "text",
    [
        "for batch in loader:\n    loss.backward()\n    if loss.isnan():\n        sys.exit()",
        "while True:\n    for batch in loader:\n        if not batch:\n            exit(0)\n        loss.backward()",
        "def train():\n    for batch in loader:\n        loss.backward()\n        if done: quit()",
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
    ],
)
def test_an_exit_of_all_ranks_or_with_a_code_is_not(found, job, text):
    assert not found("K19", job(HEAD + text, ranks_per_host=2))


def test_one_rank_may_leave(found, job):
    text = HEAD + "for batch in loader:\n    loss.backward()\n    if loss.isnan():\n        sys.exit()"
    assert not found("K19", job(text, ranks_per_host=1))
