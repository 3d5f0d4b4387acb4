"""K18: every rank saves to the same file."""

import pytest

from paceline.findings import Severity

HEAD = "import torch\nimport torch.distributed as dist\ndist.init_process_group()\n"


@pytest.mark.parametrize(
    "text",
    [
        "torch.save(model.state_dict(), 'model.pt')",
        "for epoch in range(3):\n    if epoch % 2 == 0:\n        torch.save(model, f'{args.out}/epoch-{epoch}.pt')",
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
