"""K13: a script that starts its own ranks under a launcher that starts several of it."""

import pytest

from paceline.findings import Severity

SPAWNS = [
    "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n",
    "from torch.multiprocessing import spawn\nif __name__ == '__main__':\n    spawn(main, args=(1,), nprocs=4)\n",
    "import torch\ndef run():\n    torch.multiprocessing.start_processes(main, nprocs=2)\nrun()\n",
]


@pytest.mark.parametrize("text", SPAWNS)
def test_every_rank_would_spawn_ranks(found, job, text):
    (finding,) = found("K13", job(text, ranks_per_host=2))
    assert finding.severity is Severity.WARNING and finding.line and "2 ranks of a host" in finding.what


@pytest.mark.parametrize("text", SPAWNS)
def test_one_process_a_host_may_spawn(found, job, text):
    assert not found("K13", job(text, ranks_per_host=1, hosts=2)) and not found("K13", job(text, ranks_per_host=None))


@pytest.mark.parametrize(
    "text",
    [
        "import torch.multiprocessing as mp\nclass Launcher:\n    def launch(self):\n        mp.spawn(self.go, nprocs=2)\n",
        "import torch.multiprocessing as mp\ndef launch():\n    mp.spawn(go, nprocs=2)\n",
    ],
)
def test_what_nobody_is_seen_to_call_is_not_reported(found, job, text):
    assert not found("K13", job(text, ranks_per_host=2))


def test_a_script_that_asks_first_is_right(found, job):
    text = """\
        import os, torch.multiprocessing as mp
        if "RANK" not in os.environ:
            mp.spawn(main, nprocs=2)
        """
    assert not found("K13", job(text, ranks_per_host=2))
