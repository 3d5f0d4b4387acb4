"""K42: loader workers whose seeds are the same on every rank."""

import pytest

from paceline.rules.job_facts import SourceFile

HEAD = "import random\nimport numpy as np\nimport torch\nfrom torch.utils.data import DataLoader\n"
BY_TORCH = (
    "def init(worker):\n    seed = torch.initial_seed() % 2**32\n    np.random.seed(seed)\n    random.seed(seed)\n"
)
LOADER = "loader = DataLoader(data, num_workers=2, worker_init_fn=init)\n"
ALIKE = "torch.manual_seed(42)\n"


@pytest.mark.parametrize(
    "text",
    [
        ALIKE + BY_TORCH + LOADER,
        BY_TORCH
        + "def main():\n    torch.manual_seed(0)\n    loader = DataLoader(data, 8, worker_init_fn=init, num_workers=n)\n",
        "def init(worker):\n    np.random.seed(worker)\n" + LOADER,
        "SEED = 7\ndef init(worker):\n    random.seed(SEED + worker)\n" + LOADER,
        "def init(worker):\n    torch.manual_seed(1234)\n" + LOADER,
        ALIKE + "def init(worker):\n    np.random.seed(torch.initial_seed() % 2**32 + worker)\n" + LOADER,
        "SEED = 7\ntorch.manual_seed(SEED)\n" + BY_TORCH + LOADER,
        '"""Every rank seeds alike."""\n' + ALIKE + BY_TORCH + LOADER,
    ],
)
def test_seeds_without_the_rank_are_reported_once(found, job, text):
    (finding,) = found("K42", job(HEAD + text + LOADER, ranks_per_host=2))
    assert "init" in finding.what and "rank" in finding.next


@pytest.mark.parametrize(
    "text",
    [
        BY_TORCH + LOADER,
        "torch.manual_seed(args.seed)\n" + BY_TORCH + LOADER,
        "torch.manual_seed(42 + dist.get_rank())\n" + BY_TORCH + LOADER,
        ALIKE + "torch.manual_seed(mine)\n" + BY_TORCH + LOADER,
        ALIKE + BY_TORCH + LOADER + "seed = base + rank\n",
        "def init(worker):\n    np.random.seed(args.seed + worker)\n" + LOADER,
        "def init(worker):\n    np.random.seed(base() + worker)\n" + LOADER,
        "def init(worker):\n    print(worker)\n" + LOADER,
        "def init(worker):\n    np.random.seed()\n" + LOADER,
        "SEED = 7\nSEED = mine()\ndef init(worker):\n    random.seed(SEED + worker)\n" + LOADER,
        ALIKE + BY_TORCH + "loader = DataLoader(data, num_workers=2, worker_init_fn=init, generator=mine)\n",
        ALIKE + BY_TORCH + "loader = DataLoader(data, num_workers=2)\n",
        ALIKE + "loader = DataLoader(data, num_workers=2, worker_init_fn=theirs.init)\n",
        ALIKE + "loader = DataLoader(data, num_workers=2, worker_init_fn=theirs)\n",
        # The seed, or one of two, is made another one on the way.
        "def init(worker):\n    seed = worker\n    seed += mine() * 1000\n    np.random.seed(seed)\n" + LOADER,
        "def init(worker):\n    worker += mine()\n    np.random.seed(worker)\n" + LOADER,
        "def init(worker):\n    seed = worker\n    if many:\n        seed = mine()\n    np.random.seed(seed)\n"
        + LOADER,
        "def init(worker):\n    random.seed(worker)\n    np.random.seed(mine())\n" + LOADER,
        "def init(worker, mine=mine()):\n    random.seed(worker + mine)\n" + LOADER,
        "if many:\n    def init(worker):\n        random.seed(mine())\nelse:\n    def init(worker):\n        random.seed(worker)\n"
        + LOADER,
        ALIKE + "torch.seed()\n" + BY_TORCH + LOADER,
        ALIKE + "from lightning import seed_everything\nseed_everything(mine)\n" + BY_TORCH + LOADER,
    ],
)
def test_what_may_be_right_is_not_reported(found, job, text):
    assert not found("K42", job(HEAD + text, ranks_per_host=2))


def test_one_rank_and_a_file_that_gives_each_rank_its_seed(found, job):
    text = HEAD + ALIKE + BY_TORCH + LOADER
    assert not found("K42", job(text, ranks_per_host=1))
    imported = (SourceFile("engine.py", "def go(seed, local_rank):\n    torch.manual_seed(seed + local_rank)\n"),)
    assert not found("K42", job(text, ranks_per_host=2, imported=imported))
