"""K22: a shuffling sampler that is never told of the epoch."""

import pytest

from paceline.rules.job_facts import SourceFile

SAMPLER = "from torch.utils.data.distributed import DistributedSampler\nsampler = DistributedSampler(data)\n"
EPOCHS = "for epoch in range(3):\n    for batch in loader:\n        pass\n"


@pytest.mark.parametrize(
    "text",
    [
        SAMPLER + EPOCHS,
        "import torch\nsampler = torch.utils.data.DistributedSampler(data, shuffle=True)\n" + EPOCHS,
        SAMPLER + "for epoch in range(3):\n    if epoch:\n        for batch in loader: pass\n",
    ],
)
def test_no_call_of_set_epoch_is_reported_once(found, job, text):
    (finding,) = found("K22", job(text, ranks_per_host=2))
    assert "set_epoch" in finding.next


@pytest.mark.parametrize(
    "text",
    [
        SAMPLER + "for epoch in range(3):\n    sampler.set_epoch(epoch)\n    for batch in loader: pass\n",
        SAMPLER.replace("(data)", "(data, shuffle=False)") + EPOCHS,
        SAMPLER + "for batch in loader:\n    pass\n",
        "import lightning\n" + SAMPLER + EPOCHS,
        SAMPLER.replace("(data)", "(data, shuffle=args.shuffle)") + EPOCHS,
    ],
)
def test_what_may_be_right_is_not_reported(found, job, text):
    assert not found("K22", job(text, ranks_per_host=2))


def test_a_file_that_is_imported_may_call_it(found, job):
    imported = (SourceFile("engine.py", "def go(sampler, n):\n    sampler.set_epoch(n)\n"),)
    assert not found("K22", job(SAMPLER + EPOCHS, ranks_per_host=2, imported=imported))
    assert not found("K22", job(SAMPLER + EPOCHS, ranks_per_host=1))


def test_the_script_may_call_it_for_a_file_that_it_imports(found, job):
    imported = (SourceFile("data.py", SAMPLER + EPOCHS),)
    calls = "import data\nfor epoch in range(3):\n    data.sampler.set_epoch(epoch)\n"
    assert not found("K22", job(calls, ranks_per_host=2, imported=imported))
    (finding,) = found("K22", job("import data\n", ranks_per_host=2, imported=imported))
    assert finding.file == "data.py"
