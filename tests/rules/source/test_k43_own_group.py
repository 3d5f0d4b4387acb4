"""K43: new_group is a call of all ranks, for each group."""

import pytest

HEAD = (
    "import os\nimport torch.distributed as dist\nfrom torch.distributed import new_group\ndist.init_process_group()\n"
)
RANK = HEAD + "rank = dist.get_rank()\n"


@pytest.mark.parametrize(
    "text",
    [
        RANK + "mine = [0, 3] if rank in (0, 3) else [1, 2]\ngroup = dist.new_group(mine)\n",
        RANK + "group = new_group([0, 1] if rank < 2 else [2, 3])\n",
        RANK + "group = dist.new_group(ranks=[rank - rank % 2, rank - rank % 2 + 1])\n",
        HEAD + "first = dist.get_rank() // 4 * 4\ngroup = dist.new_group(list(range(first, first + 4)))\n",
        HEAD
        + "base = int(os.environ['RANK']) // 2\nrank = int(os.environ['RANK'])\nnew_group(range(rank, rank + 2))\n",
        RANK + "ranks = [r for r in range(8) if r % 2 == rank % 2]\ngroup = dist.new_group(ranks)\n",
        RANK + "pair = [0, 1]\nif rank in pair:\n    group = dist.new_group(pair)\n",
        HEAD
        + "for ranks in ([0, 1], [2, 3]):\n    if dist.get_rank() in ranks:\n        group = dist.new_group(ranks)\n",
        HEAD + "def make(self):\n    return dist.new_group([self.global_rank, self.global_rank ^ 1])\n",
    ],
)
def test_a_group_that_only_its_members_make_is_reported(found, job, text):
    (finding,) = found("K43", job(text, ranks_per_host=4))
    assert "new_group" in finding.saw and "every rank" in finding.next


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "group = dist.new_group([0, 1])\n",
        HEAD + "group = dist.new_group()\n",
        HEAD + "group = dist.new_group(list(range(dist.get_world_size() // 2)))\n",
        RANK
        + "for ranks in ([0, 1], [2, 3]):\n    group = dist.new_group(ranks)\n    if rank in ranks:\n        mine = group\n",
        RANK + "groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]\nmine = groups[rank // 2]\n",
        HEAD + "for rank in range(0, 8, 2):\n    group = dist.new_group([rank, rank + 1])\n",
        HEAD + "for i, rank in enumerate(range(4)):\n    dist.new_group(list(range(rank, rank + 2)))\n",
        RANK + "group = dist.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)\n",
        RANK + "group = dist.new_group([rank])\n",
        RANK + "if rank in (0, 1):\n    print('in the first pair')\ngroup = dist.new_group([0, 1])\n",
        HEAD + "def make(ranks):\n    return dist.new_group(ranks)\n",
        HEAD + "group = dist.new_group(args.ranks)\n",
        RANK + "if args.local_rank != -1:\n    group = dist.new_group([0, 1])\n",
    ],
)
def test_what_all_ranks_make_is_not(found, job, text):
    assert not found("K43", job(text, ranks_per_host=4))


def test_one_rank_meets_itself(found, job):
    assert not found("K43", job(RANK + "dist.new_group([0, 1] if rank < 2 else [2, 3])\n", ranks_per_host=1))
