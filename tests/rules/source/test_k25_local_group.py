"""K25: a group that some ranks make alone, before a group of all."""

import pytest

HEAD = "import torch.distributed as dist\ndist.init_process_group()\nrank = dist.get_rank()\n"
LOCAL = "dist.new_group([0, 1], use_local_synchronization=True)"
LATER = "everyone = dist.new_group()\n"


@pytest.mark.parametrize("version", ["2.14.0", "2.15.0+cu132", "2.16.0.dev20261101", "3.0", None, "nightly"])
@pytest.mark.parametrize(
    "text",
    [
        f"if rank < 2:\n    pair = {LOCAL}\n" + LATER,
        f"if dist.get_rank() in (0, 1):\n    pair = {LOCAL}\nfor _ in range(2):\n    dist.new_group()\n",
        f"if int(os.environ['RANK']) < 2 and local_rank >= 0:\n    pair = {LOCAL}\nmesh = dist.init_device_mesh('cpu', (2, 2))\n",
        f"pair = {LOCAL} if rank < 2 else None\n" + LATER,
    ],
)
def test_a_group_of_some_ranks_before_one_of_all_is_reported_once(found, job, text, version):
    (finding,) = found("K25", job(HEAD + text, ranks_per_host=4, torch_version=version))
    assert "2.14" in finding.what and finding.line in (4, 5)


@pytest.mark.parametrize("version", ["2.4.1", "2.13.0", "2.13.1+cpu", "1.13"])
def test_an_older_torch_does_not_count_such_groups(found, job, version):
    assert not found("K25", job(HEAD + f"if rank < 2:\n    {LOCAL}\n" + LATER, ranks_per_host=4, torch_version=version))


@pytest.mark.parametrize(
    "text",
    [
        f"if rank < 2:\n    {LOCAL}\n",
        LATER + f"if rank < 2:\n    {LOCAL}\n",
        f"{LOCAL}\n" + LATER,
        f"if args.pairs:\n    {LOCAL}\n" + LATER,
        f"if rank < 2:\n    {LOCAL}\nelse:\n    {LOCAL.replace('0, 1', '2, 3')}\n" + LATER,
        f"if rank < 2:\n    {LOCAL}\nif rank < 2:\n    dist.new_group()\n",
        f"if rank < 2:\n    {LOCAL.replace('True', 'False')}\n" + LATER,
        f"if rank < 2:\n    {LOCAL.replace('True', 'args.local')}\n" + LATER,
        "if rank < 2:\n    dist.new_group([0, 1])\n" + LATER,
    ],
)
def test_what_may_be_right_is_not_reported(found, job, text):
    assert not found("K25", job(HEAD + text, ranks_per_host=4, torch_version="2.15.0"))


@pytest.mark.parametrize(("version", "count"), [("2.6.0", 0), ("2.15", 1)])
def test_the_torch_of_a_container_is_that_of_its_framework(found, job, version, count):
    text = HEAD + f"if rank < 2:\n    {LOCAL}\n" + LATER
    assert len(found("K25", job(text, ranks_per_host=4, framework="pytorch", framework_version=version))) == count


def test_one_rank_meets_itself(found, job):
    assert not found(
        "K25", job(HEAD + f"if rank < 2:\n    {LOCAL}\n" + LATER, ranks_per_host=1, torch_version="2.15.0")
    )
