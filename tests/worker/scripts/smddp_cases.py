"""What `smdistributed` answers in a job of two ranks, case by case; writes to DIRECTORY what went wrong."""

import json
import os
import sys
import traceback
from pathlib import Path

import smdistributed
import smdistributed.dataparallel.torch as library
import smdistributed.dataparallel.torch.distributed as dist
import torch
import torch.distributed as torchs
from smdistributed.dataparallel.torch.parallel import DistributedDataParallel as ShortDDP
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP


def raises(kind, text, action, *args, **kwargs):
    try:
        action(*args, **kwargs)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def case_before_there_is_a_group():
    assert dist.is_available() is True and dist.is_initialized() is False
    assert (dist.get_local_rank(), dist.get_local_size()) == (
        int(os.environ["LOCAL_RANK"]),
        int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
    assert os.environ["SMDATAPARALLEL_LOCAL_RANK"] == os.environ["LOCAL_RANK"]
    raises(ValueError, "init_process_group", dist.get_rank)


def case_init_without_arguments_takes_the_environment():
    dist.init_process_group()
    assert (dist.get_rank(), dist.get_world_size()) == (RANK, 2) == (library.get_rank(), library.get_world_size())
    assert dist.is_initialized() and torchs.get_backend() == "smddp"


def case_init_a_second_time_is_none():
    dist.init_process_group()
    dist.init_process_group("smddp")


def case_paths_by_which_the_ddp_is_known():
    assert ShortDDP is DDP and issubclass(DDP, torch.nn.parallel.DistributedDataParallel)


def case_the_package_looks_installed():
    assert smdistributed.__file__ and smdistributed.__path__ == []
    assert dist.__name__ == "smdistributed.dataparallel.torch.distributed" and "module API" in dist.__doc__


def case_all_reduce():
    for op, expected in (("SUM", 3.0), ("AVERAGE", 1.5), ("MIN", 1.0), ("MAX", 2.0), ("PRODUCT", 2.0)):
        for count in (3, 300_000):
            value = torch.full((count,), RANK + 1.0)
            assert dist.all_reduce(value, op=getattr(dist.ReduceOp, op), group=dist.group.WORLD, async_op=False) is None
            assert bool((value == expected).all()), (op, count)
    value = torch.tensor([RANK + 1.0])
    dist.all_reduce(value, None)
    assert value.item() == 3


def case_an_average_of_counts():
    value = torch.tensor([4 + RANK, -4 - RANK])
    dist.all_reduce(value, dist.ReduceOp.AVERAGE)
    assert value.tolist() == [4, -4]


def case_all_reduce_later():
    for op, expected in ((dist.ReduceOp.SUM, 3.0), (dist.ReduceOp.AVERAGE, 1.5)):
        value = torch.full((5,), RANK + 1.0)
        work = dist.all_reduce(value, op=op, async_op=True)
        work.wait()
        assert work.is_completed() and value[0].item() == expected


def case_bits_too():
    value = torch.tensor([1 << RANK])
    dist.all_reduce(value, dist.ReduceOp.BOR)
    assert value.item() == 3


def case_average_on_a_group_of_another_backend():
    gloo = dist.new_group(backend="gloo")
    for later in (False, True):
        value = torch.full((4,), RANK + 1.0)
        work = dist.all_reduce(value, op=dist.ReduceOp.AVERAGE, group=gloo, async_op=later)
        if later:
            assert work.wait() and work.wait()
        assert value.tolist() == [1.5] * 4


def case_a_parameter_itself():
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(RANK)
    dist.all_reduce(model.weight, op=dist.ReduceOp.SUM)
    dist.broadcast(model.bias, 0)
    assert bool((model.weight == 1).all())


def case_broadcast_from_zero_where_nothing_is_said():
    value = torch.tensor([RANK, RANK])
    dist.broadcast(value)
    assert value.tolist() == [0, 0]
    work = dist.broadcast(value.fill_(RANK), src=1, async_op=True)
    work.wait()
    assert value.tolist() == [1, 1]


def case_all_gather():
    parts = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(parts, torch.full((2,), float(RANK)))
    assert [part.tolist() for part in parts] == [[0, 0], [1, 1]]


def case_all_to_all_single_with_the_names_of_then():
    output = torch.zeros(2, dtype=torch.int64)
    dist.all_to_all_single(output_t=output, input_t=torch.tensor([10 * RANK, 10 * RANK + 1]))
    assert output.tolist() == [RANK, 10 + RANK]
    output = torch.zeros(1 + 2 * RANK, dtype=torch.int64)
    sent = [1, 2] if RANK == 0 else [0, 1]
    dist.all_to_all_single(output, torch.arange(sum(sent)), [1, 0] if RANK == 0 else [2, 1], sent)
    assert output.tolist() == [[0], [1, 2, 0]][RANK]


def case_barrier():
    assert dist.barrier() is None
    dist.barrier(async_op=True).wait()


def case_groups_which_the_library_could_not():
    alone = dist.new_group([0])
    if RANK == 0:
        value = torch.ones(1)
        dist.all_reduce(value, group=alone)
        assert value.item() == 1 and dist.get_world_size(alone) == 1
    both = dist.new_group([0, 1], backend="smddp")
    output = torch.zeros(4)
    both._allgather_base(output, torch.full((2,), float(RANK))).wait()
    assert output.tolist() == [0, 0, 1, 1]


def case_a_model_broadcast():
    torch.manual_seed(RANK)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    model[1].num_batches_tracked.fill_(RANK)
    dist.broadcast_parameters(model, src=1)
    dist.broadcast_parameters(model.state_dict(), root_rank=1)
    dist.broadcast_parameters(model.named_parameters())
    assert model[1].num_batches_tracked.item() == 1
    assert same_everywhere(model[0].weight)


def case_a_model_averaged():
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(RANK)
    dist.average_parameters(model)
    assert model.weight.tolist() == [[0.5, 0.5]]


def case_gradients_averaged_by_hand():
    first, second, third = (torch.nn.Linear(2, 1, bias=False) for _ in range(3))
    model = torch.nn.ModuleList([first, second, third])
    first(torch.full((1, 2), RANK + 1.0)).sum().backward()
    if RANK:
        second(torch.ones(1, 2)).sum().backward()
    dist.average_gradients(model)
    assert first.weight.grad.tolist() == [[1.5, 1.5]]
    assert second.weight.grad.tolist() == [[0.5, 0.5]]
    assert third.weight.grad is None


def case_ddp_averages_gradients():
    torch.manual_seed(RANK)
    model = DDP(torch.nn.Linear(4, 1), device_ids=[dist.get_local_rank()], output_device=0, bucket_cap_mb=None)
    assert same_everywhere(model.module.weight)
    model(torch.full((1, 4), RANK + 1.0)).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.5] * 4]


def case_ddp_accumulates_where_it_was_told_to():
    model = DDP(torch.nn.Linear(2, 1, bias=False), gradient_accumulation_steps=2)
    model(torch.full((1, 2), RANK + 1.0)).sum().backward()
    assert model.module.weight.grad.tolist() == [[RANK + 1.0] * 2]
    model(torch.full((1, 2), RANK + 1.0)).sum().backward()
    assert model.module.weight.grad.tolist() == [[3.0, 3.0]]
    raises(ValueError, "counts passes", DDP, torch.nn.Linear(1, 1), gradient_accumulation_steps=0)


def case_ddp_no_sync_and_arguments_of_today():
    model = DDP(torch.nn.Linear(2, 1, bias=False), process_group=dist.group.WORLD, find_unused_parameters=True)
    with model.no_sync():
        model(torch.full((1, 2), RANK + 1.0)).sum().backward()
    assert model.module.weight.grad.tolist() == [[RANK + 1.0] * 2]


def case_buffers():
    for broadcast, expected in ((True, 0), (False, RANK)):
        model = DDP(torch.nn.BatchNorm1d(1), broadcast_buffers=broadcast)
        model.module.num_batches_tracked.fill_(10 * RANK)
        model.module.train()
        model(torch.randn(4, 1))
        assert model.module.num_batches_tracked.item() == 10 * expected + 1


def case_names_that_never_existed():
    for wrong, right in (("allreduce", "`all_reduce`"), ("init", "`init_process_group`"), ("size", "`get_world_size`")):
        raises(AttributeError, right, getattr, dist, wrong)
    raises(AttributeError, "error[U32]", getattr, dist, "nothing_like_any_other")
    assert not hasattr(dist, "allreduce") and hasattr(dist, "gather") and "all_reduce" in dir(dist)


def case_the_other_sides_of_the_library():
    raises(ImportError, "No module named 'tensorflow'", __import__, "smdistributed.dataparallel.tensorflow")
    raises(ImportError, "error[U32]", __import__, "smdistributed.modelparallel.torch")
    raises(ModuleNotFoundError, "nonsense", __import__, "smdistributed.dataparallel.nonsense")


def case_teardown_and_the_names_of_other_backends():
    dist.destroy_process_group()
    assert not dist.is_initialized()
    for backend, expected in (
        ("mpi", "smddp"),
        ("nccl", "smddp" if not torch.cuda.is_available() else "nccl"),
        ("gloo", "gloo"),
    ):
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
        dist.init_process_group(backend, init_method="env://")
        assert torchs.get_backend() == expected
        dist.barrier()
        dist.destroy_process_group()


def case_a_forgotten_import():
    # The name is known in a job without any import of the library.
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    torchs.init_process_group("smddp")
    value = torch.ones(2)
    torchs.all_reduce(value)
    assert value.tolist() == [2, 2]


def same_everywhere(tensor):
    parts = [torch.zeros_like(tensor) for _ in range(2)]
    torchs.all_gather(parts, tensor.detach())
    return torch.equal(*parts)


RANK = int(os.environ["RANK"])
failed = {}
for name in [name for name in globals() if name.startswith("case_")]:
    try:
        globals()[name]()
    except BaseException:
        failed[name] = traceback.format_exc()
        break
Path(sys.argv[1], f"{RANK}.json").write_text(json.dumps({"failed": failed, "last": name}))
sys.exit(bool(failed))
