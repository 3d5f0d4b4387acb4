"""`paceline run --gradients NAME`: unmodified scripts exchange by it, and the person is told once what came of it."""

import pytest

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(120)]

TWO_MODELS = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def own(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

dist.init_process_group("gloo")
torch.manual_seed(0)
models = [DistributedDataParallel(torch.nn.Linear(300, 300)) for _ in range(2)]
models[1].register_comm_hook(None, own)
for step in range(4):
    for model in models:
        model(torch.full((2, 300), float(dist.get_rank() + 1))).pow(2).sum().backward()
hooks = [model.logger._get_ddp_logging_data().strs_map.get("comm_hook") for model in models]
print("hooks", hooks, flush=True)
for model in models:
    gradient = model.module.weight.grad.flatten()
    both = [torch.empty_like(gradient) for _ in range(2)]
    dist.all_gather(both, gradient)
    assert torch.equal(both[0], both[1])
dist.destroy_process_group()
"""

NO_MODEL = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(3):
    weight.sum().backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
dist.destroy_process_group()
"""


def notices(paceline):
    return [event["text"] for event in paceline.evidence().events if event.get("topic") == "gradients"]


@pytest.mark.smoke
def test_every_model_of_a_script_gets_the_strategy_and_one_with_a_hook_keeps_its_own(paceline):
    script = paceline.script("train.py", TWO_MODELS)
    done = paceline.run("run", "--local-hosts", "2", "--gradients", "direct+bf16", script)
    assert done.code == 0, done.err
    assert "hooks ['paceline:direct+bf16', 'own']" in done.out
    said = notices(paceline)
    assert said[0] == "--gradients direct+bf16: at work, not exact" and len(said) == len(set(said)) == 2
    assert "steps aside for one model: it registered own" in said[1]
    assert done.err.count("paceline  --gradients direct+bf16: at work") == 1


def test_a_script_without_ddp_is_told_that_there_is_nothing_to_do(paceline):
    done = paceline.run("run", "--nproc-per-node", "2", "--gradients", "auto", paceline.script("train.py", NO_MODEL))
    assert done.code == 0, done.err
    (said,) = notices(paceline)
    assert said.startswith("--gradients auto has nothing to do: no DistributedDataParallel was made") and "X13" in said
    assert "  gradients   auto has nothing to do" in done.err
