"""K18: every rank saves to the same file."""

import pytest

from paceline.findings import Severity

HEAD = "import torch\nimport torch.distributed as dist\ndist.init_process_group()\n"


@pytest.mark.parametrize(
    "text",
    [
        "torch.save(model.state_dict(), 'model.pt')",
        "for epoch in range(3):\n    if epoch % 2 == 0:\n        torch.save(model, f'{args.out}/epoch-{epoch}.pt')",
        "path = 'last.pth'\ntorch.save(model, path)",
        "import os\ntorch.save(model, os.path.join(os.environ.get('SM_MODEL_DIR', '.'), 'model.pth'))",
        "import os\ntorch.save(model, os.path.join(os.environ['SM_MODEL_DIR'], 'model.pth'))",
        "from pathlib import Path\nout = Path('out')\ntorch.save(model, out / 'model.pth')",
        "args = parser.parse_args()\ntorch.save(model, args.out + '/model.pth')",
        "if device.type == 'cpu':\n    torch.save(model, 'last.pth')",
        "if torch.cuda.is_available() and n_gpu > 1:\n    torch.save(model, 'last.pth')",
        "step = 0\nfor batch in loader:\n    step += 1\n    torch.save(model, f'{step}.pt')",
        "def main(args):\n    for epoch, _ in enumerate(loader):\n        torch.save(model, f'{args.out}/{epoch:03}.pt')\nmain(parsed)",
        "if not has_gpus(2):\n    exit()\ntorch.save(model, 'a.pt')",
        "def save():\n    torch.save(model, f='a.pt')\n\ndef main():\n    save()\n\nif __name__ == '__main__':\n    main()",
    ],
)
def test_all_ranks_write_one_file(found, job, text):
    (finding,) = found("K18", job(HEAD + text, ranks_per_host=2))
    assert finding.severity is Severity.WARNING and finding.next.startswith("if dist.get_rank() == 0: torch.save(")


@pytest.mark.parametrize(
    "text",
    [
        "if dist.get_rank() == 0:\n    torch.save(model, 'model.pt')",
        "if args.gpu == 0:\n    torch.save(model, 'model.pt')",
        "torch.save(model, f'model-{rank}.pt')",
        "torch.save(model, path)",
        "path = 'a'\npath = f'{rank}'\ntorch.save(model, path)",
        "path = place_of(rank)\ntorch.save(model, path)",
        "for path in paths:\n    torch.save(model, path)",
        "def save(path):\n    torch.save(model, path)\nsave('a.pt')",
        "torch.save(model, config.out)",
        "def save(state):\n    torch.save(model, state.path)\nsave(mine)",
        # What the path has may be each rank's own, or has been made so.
        "me = dist.get_rank()\ntorch.save(model, f'part-{me}.pt')",
        "me = dist.get_rank()\npath = f'part-{me}.pt'\ntorch.save(model, path)",
        "def save(shard):\n    torch.save(model, f'{shard}.pt')\nsave(mine)",
        "for name, batch in loader:\n    torch.save(batch, f'{name}.pt')",
        "import os\npid = os.getpid()\ntorch.save(model, f'{pid}.pt')",
        "import tempfile\nwith tempfile.TemporaryDirectory() as folder:\n    torch.save(model, f'{folder}/a.pt')",
        "args = parser.parse_args()\nargs.out = mine\ntorch.save(model, args.out)",
        "import os\nos.chdir(mine)\ntorch.save(model, 'a.pt')",
        # The condition is a name, a function, a match, an `and`; or the other ranks have left.
        "saves = dist.get_rank() == 0\nif saves:\n    torch.save(model, 'a.pt')",
        "me = dist.get_rank()\nif me == 0:\n    torch.save(model, 'a.pt')",
        "args.saves = dist.get_rank() == 0\nif args.saves:\n    torch.save(model, 'a.pt')",
        "def writes():\n    return dist.get_rank() == 0\nif writes():\n    torch.save(model, 'a.pt')",
        "from setup import writes\nif writes():\n    torch.save(model, 'a.pt')",
        "dist.get_rank() == 0 and torch.save(model, 'a.pt')",
        "match dist.get_rank():\n    case 0:\n        torch.save(model, 'a.pt')",
        "import sys\nif dist.get_rank() != 0:\n    sys.exit()\ntorch.save(model, 'a.pt')",
        "if device == 0:\n    torch.save(model, 'last.pth')",
        "if not gpu:\n    torch.save(model, 'last.pth')",
        "if rank == 0:\n    pass\nelse:\n    torch.save(model, 'a.pt')",
        "if rank != 0:\n    pass\nelse:\n    torch.save(model, 'a.pt')",
        "if rank == 0:\n    torch.save(model, 'a.pt')\nelse:\n    torch.save(model, 'b.pt')",
        "def save():\n    torch.save(model, 'a.pt')\nif is_main_process():\n    save()",
        "def save():\n    if rank != 0:\n        return\n    torch.save(model, 'a.pt')\nsave()",
        "def save():\n    torch.save(model, 'a.pt')",
        "class A:\n    def save(self):\n        torch.save(self, 'a.pt')",
        "@main_only\ndef save():\n    torch.save(model, 'a.pt')\nsave()",
        "for epoch in range(3):\n    if local_rank:\n        continue\n    torch.save(model, 'a.pt')",
        "def save():\n    save()\n    torch.save(model, 'a.pt')",
    ],
)
def test_what_may_be_one_ranks_is_not_reported(found, job, text):
    assert not found("K18", job(HEAD + text, ranks_per_host=2))


def test_a_job_of_one_rank_and_a_script_of_one_are_right(found, job):
    assert not found("K18", job(HEAD + "torch.save(model, 'a.pt')", ranks_per_host=1))
    assert not found("K18", job("import torch\ntorch.save(model, 'a.pt')", ranks_per_host=2))


@pytest.mark.parametrize(
    "test", ["rank == 0", "ddp and int(os.environ['LOCAL_RANK']) == 0", "is_main_process()", "0 == dist.get_rank()"]
)
def test_the_other_ranks_save_to_the_file_of_rank_0(found, job, test):
    text = f"import os\nif {test}:\n    torch.save(model, 'a.pt')\nelse:\n    torch.save(other, 'a.pt')"
    (finding,) = found("K18", job(HEAD + text, ranks_per_host=2))
    assert "from the else branch" in finding.what and "train.py:8" in finding.what


def test_three_ranks_meet_in_an_else_branch(found, job):
    text = "if rank == 0:\n    pass\nelse:\n    torch.save(model, 'a.pt')"
    assert found("K18", job(HEAD + text, ranks_per_host=3)) and not found("K18", job(HEAD + text, ranks_per_host=2))
