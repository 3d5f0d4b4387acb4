"""Tensors that are spread over ranks, here over a group of one rank, in a process of its own."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
    import marshal, torch, torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from paceline.parts.resume.worker.kinds import Context
    from paceline.parts.resume.worker.object_graph import CannotKeep, CannotPutBack, Capture, Restore
    from paceline.parts.resume.worker.shared_memory import fill, put_in_place
    from paceline.parts.resume.worker.state_dicts import StateDicts

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.passes = nn.Linear(4, 3), 0

        def forward(self, x):
            self.passes += 1
            return self.inner(x)

    def made(seed, name="dp", sharded=True):
        torch.manual_seed(seed)
        model = Model()
        if sharded:
            fully_shard(model, mesh=init_device_mesh("cpu", (1,), mesh_dim_names=(name,)))
        return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=0.1)}

    def step(script, n):
        script["optimizer"].zero_grad()
        script["model"](torch.full((2, 4), float(n))).square().sum().backward()
        script["optimizer"].step()
        return [parameter.full_tensor().tolist() for parameter in script["model"].parameters()]

    def kept(script):
        capture = Capture(Context(None))
        values = capture.variables(script)
        tensors = [tensor.detach().clone() for tensor in capture.tensors]
        return values, marshal.loads(marshal.dumps((values, capture.nodes))), tensors, capture

    def put_back(state, script):
        _, (values, nodes), tensors, _ = state
        restore = Restore(nodes, Context(None))
        found = restore.variables(values, script)
        put_in_place(restore.placed)
        with torch.no_grad():
            for tensor, number in restore.copies:
                fill(tensor, tensors[number])
        assert all(found[name] is script[name] for name in script)
        return restore

    first = made(1)
    for n in range(3):
        step(first, n)
    state = kept(first)
"""


def ran(program):
    text = textwrap.dedent(PROGRAM) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_sharded_model_and_its_optimizer_go_on_in_another_one():
    said = ran("""
        second = made(2)
        restore = put_back(state, second)
        print(second["model"].passes, len(restore.sharded) == len(state[3].sharded) == 6)
        print([step(first, n) for n in range(3, 6)] == [step(second, n) for n in range(3, 6)])
        # After a forward pass alone the whole parameters are registered; they are kept as shards.
        first["model"](torch.ones(2, 4))
        third = made(3)
        put_back(kept(first), third)
        print(step(first, 6) == step(third, 6))
        variables, nodes = state[1]
        document = {"nodes": nodes, "modules": {"__main__": variables}, "frames": [], "others": [[], []], "extra": []}
        found = StateDicts(document, state[2])
        print(found.models, found.optimizers, sorted(found.left_out))
    """)
    assert said == ["3 True", "True", "True", "{} {} ['model', 'optimizer']"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "text"),
    [
        ("made(2, name='other')", "is spread over ranks in another way than before"),
        ("made(2, sharded=False)", "has not spread `model` over ranks again"),
    ],
)
def test_another_mesh_or_none_is_no_place_for_the_shards(other, text):
    said = ran(f"""
        try:
            put_back(state, {other})
        except CannotPutBack as error:
            print(error)
    """)
    assert len(said) == 1 and text in said[0]


@pytest.mark.slow
def test_a_model_in_the_older_fsdp_is_refused_by_name():
    said = ran("""
        from torch.distributed.fsdp import FullyShardedDataParallel
        # Made without its constructor, which needs an accelerator.
        older = FullyShardedDataParallel.__new__(FullyShardedDataParallel)
        nn.Module.__init__(older)
        try:
            kept({"model": older})
        except CannotKeep as error:
            print(error)
    """)
    assert said == ["`model` is spread over ranks by FullyShardedDataParallel; by fully_shard it could be kept"]
