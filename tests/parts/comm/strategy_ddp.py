"""What DistributedDataParallel offers keeps working under every strategy: the same script with and without, on the same inputs.

Exact strategies must train to allclose parameters, lossy ones to nearby ones, and all ranks must hold bitwise the same. With
`local_sgd` ranks hold the same after every second step; with plain SGD it is near plain DDP too.
"""

import copy
import pickle
from contextlib import nullcontext

import torch
import torch.distributed as dist
from strategy_ranks import EXACT, close, drawn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parts.comm.ddp.attach import attach, use
from paceline.parts.comm.ddp.hook import HookState, hook
from paceline.parts.comm.strategies.strategy import parse

LOSSY = ("direct+bf16", "ring+int8", "direct+int8", "direct+powersgd:rank=2", "powersgd:rank=2", "local_sgd:every=2")
SOME = ("direct", "hierarchical", "ring+int8", "direct+powersgd:rank=2", "local_sgd:every=2")
WIDTH = 24


def network(*, width=WIDTH, layers=4):
    torch.manual_seed(1)
    inner = [module for _ in range(layers) for module in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*inner, nn.Linear(width, 3))


def batches(place, count, *, width=WIDTH):
    return [drawn(place.rank, 5 * width, seed=number).view(5, width) for number in range(count)]


def wrapped(place, name, module, **options):
    """Small buckets, so that there are several."""
    ddp = DistributedDataParallel(module, process_group=place.group, **{"bucket_cap_mb": 0.001, **options})
    if name is not None:
        ddp.attached = attach(ddp, name, host_key=place.host_key)
    return ddp


def losses(module, batch):
    return module(batch).square().mean()


def sgd(ddp):
    return torch.optim.SGD([parameter for parameter in ddp.parameters() if parameter.requires_grad], lr=0.1)


def trained(ddp, inputs, optimizer=None):
    optimizer = optimizer or sgd(ddp)
    for batch in inputs:
        optimizer.zero_grad()
        losses(ddp, batch).backward()
        optimizer.step()
    return ddp


def weights(ddp):
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in ddp.parameters()])


def alike(place, name, ddp, plain):
    mine, reference = weights(ddp), weights(plain)
    for other in place.gathered(mine):
        assert torch.equal(other, mine), "ranks hold different parameters"
    if parse(name).is_exact:
        close(mine, reference, rtol=1e-5, atol=1e-6)
    else:
        assert (mine - reference).norm() <= 0.1 * reference.norm()
    assert not torch.equal(reference, weights(network())) or reference.numel() != weights(network()).numel()


def by_both(place, name, script, module=network, **options):
    """The script with the strategy and without; what it does to the parameters must be alike."""
    ddp, plain = (wrapped(place, which, module(), **options) for which in (name, None))
    script(ddp)
    script(plain)
    alike(place, name, ddp, plain)
    return ddp


def several_buckets(place, name):
    ddp = by_both(place, name, lambda ddp: trained(ddp, batches(place, 6)))
    last = ddp.attached.last
    if parse(name).every is None:
        sizes = [size for size, _ in last.buckets]
        assert len(sizes) > 2 and last.seconds > 0 and sum(sizes) == 4 * weights(ddp).numel(), (
            last,
            weights(ddp).numel(),
        )
    else:
        assert ddp.attached.local.average_count == 3 and not last.buckets


def gradients_as_views_of_buckets(place, name):
    by_both(place, name, lambda ddp: trained(ddp, batches(place, 4)), gradient_as_bucket_view=True)


def accumulation_without_sync(place, name):
    def script(ddp):
        optimizer = sgd(ddp)
        for first in range(0, 12, 3):
            optimizer.zero_grad()
            for number in range(first, first + 3):
                with ddp.no_sync() if number % 3 < 2 else nullcontext():
                    losses(ddp, batches(place, 12)[number]).backward()
            optimizer.step()

    by_both(place, name, script)


def accumulation_with_sync(place, name):
    def script(ddp):
        optimizer = sgd(ddp)
        for first in range(0, 8, 2):
            optimizer.zero_grad()
            for batch in batches(place, 8)[first : first + 2]:
                losses(ddp, batch).backward()
            optimizer.step()

    by_both(place, name, script)


def uneven_inputs(place, name):
    for divide_by_initial in (True, False):

        def script(ddp, divide=divide_by_initial):
            optimizer = sgd(ddp)
            with ddp.join(divide_by_initial_world_size=divide):
                trained(ddp, batches(place, 3 + 3 * (place.rank == 0)), optimizer)

        # Ranks that have joined take no steps of their own, so they hold other parameters, under plain DDP too: rank 0 is compared.
        ddp, plain = (wrapped(place, which, network()) for which in (name, None))
        script(ddp)
        script(plain)
        if place.rank == 0:
            off = (weights(ddp) - weights(plain)).norm() / weights(plain).norm()
            assert off <= (1e-5 if parse(name).is_exact else 0.1), (divide_by_initial, off)


class Branches(nn.Module):
    """One of two branches is used, another on each rank, and one never."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first, self.left, self.right, self.never = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.step = dist.get_rank()

    def forward(self, batch):
        self.step += 1
        return (self.left if self.step % 2 else self.right)(torch.tanh(self.first(batch)))


def unused_parameters(place, name):
    by_both(place, name, lambda ddp: trained(ddp, batches(place, 6)), Branches, find_unused_parameters=True)


class Repeated(nn.Module):
    """A layer that is used twice, with its activations computed again in backward: what static_graph is for."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, batch):
        from torch.utils.checkpoint import checkpoint

        for _ in range(2):
            batch = checkpoint(lambda x: torch.tanh(self.first(x)), batch, use_reentrant=True)
        return self.last(batch)


def static_graph(place, name):
    def script(ddp):
        trained(ddp, [batch.requires_grad_() for batch in batches(place, 4)])

    by_both(place, name, script, Repeated, static_graph=True)


def frozen_layers(place, name):
    def frozen():
        module = network()
        for parameter in (*module[0].parameters(), *module[4].parameters()):
            parameter.requires_grad_(False)
        return module

    ddp = by_both(place, name, lambda ddp: trained(ddp, batches(place, 4)), frozen)
    assert torch.equal(ddp.module[0].weight, network()[0].weight)


class Mixed(nn.Module):
    """Parameters in three dtypes, each in buckets of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.third = nn.Linear(WIDTH, 3, dtype=torch.bfloat16)

    def forward(self, batch):
        return self.third(self.second(self.first(batch).double()).bfloat16()).float()


def mixed_dtypes(place, name):
    ddp, plain = (trained(wrapped(place, which, Mixed()), batches(place, 4)) for which in (name, None))
    mine, reference = weights(ddp), weights(plain)
    assert all(torch.equal(other, mine) for other in place.gathered(mine))
    # bf16 parameters round each step.
    assert (mine - reference).norm() <= (0.01 if parse(name).is_exact else 0.1) * reference.norm()


def sparse_gradients(place, name):
    """Sparse gradients go as torch sends them; the dense ones beside them by the strategy."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(5)
            self.table, self.last = nn.Embedding(40, 8, sparse=True), nn.Linear(8, 3)

        def forward(self, words):
            return self.last(self.table(words))

    def script(ddp):
        trained(
            ddp, [torch.randint(0, 40, (6,), generator=torch.Generator().manual_seed(number)) for number in range(3)]
        )

    by_both(place, name, script, Words)


def two_models_in_one_loss(place, name):
    pairs = []
    for which in (name, None):
        encoder, decoder = (
            wrapped(place, which, network(layers=2)),
            wrapped(place, which and "ring", nn.Linear(3, WIDTH)),
        )
        with torch.no_grad():
            decoder.module.weight.fill_(0.1)
            decoder.module.bias.zero_()
        optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
        for batch in batches(place, 4):
            optimizer.zero_grad()
            (decoder(encoder(batch)) - batch).square().mean().backward()
            optimizer.step()
        pairs.append((encoder, decoder))
    (encoder, decoder), (plain_encoder, plain_decoder) = pairs
    alike(place, name, encoder, plain_encoder)
    if parse(name).is_exact:
        close(weights(decoder), weights(plain_decoder))


def fused_buckets(place, name):
    """All buckets of a step as one exchange, in the same place on every rank."""
    ddp = by_both(place, name, lambda ddp: trained(ddp, batches(place, 4)))
    assert len(ddp.attached.last.buckets) == 1


def a_hook_of_the_script(place, name):
    """Before or after ours, with a builtin one too: the script's counts, ours steps aside and says so once."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def builtin(ddp):
        ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)

    plain, said = trained(wrapped(place, None, network()), batches(place, 3)), []
    for register in (lambda ddp: ddp.register_comm_hook(place.group, allreduce_hook), builtin):
        for comes_first in (True, False):
            ddp = wrapped(place, None, network())
            if comes_first:
                register(ddp)
            attached = attach(ddp, name, host_key=place.host_key, say=said.append)
            if not comes_first:
                assert attached.aside is None
                register(ddp)
            close(weights(trained(ddp, batches(place, 3))), weights(plain))
            assert attached.aside and attached.last is None and len(said) == 1 and "hook" in said.pop()
    try:
        use(name, ddp)
    except RuntimeError as error:
        assert "DDP takes one" in str(error) or "communication hook" in str(error)
    else:
        raise AssertionError("a model with two hooks")


def registered_as_torch_does(place, name):
    """`DistributedDataParallel.register_comm_hook` with our state and our hook: as `attach`, to the bit."""
    attached = trained(wrapped(place, name, network()), batches(place, 4))
    registered = wrapped(place, None, network())
    state = HookState(name, place.group, host_key=place.host_key)
    registered.register_comm_hook(state, hook)
    assert torch.equal(weights(trained(registered, batches(place, 4))), weights(attached))
    assert state.last.sent_bytes == attached.attached.last.sent_bytes > 0


def refused_as_a_hook(place, name):
    """What works at optimizer steps is more than a hook can do."""
    try:
        HookState(name, place.group, host_key=place.host_key)
    except ValueError as error:
        assert "optimizer steps" in str(error) and "use(name, model)" in str(error)
    else:
        raise AssertionError("a hook that never averages")


def switched_between_steps(place, name):
    """Every strategy in turn on one model; exact ones only leave nothing behind."""
    ddp, plain = wrapped(place, "ring", network()), wrapped(place, None, network())
    optimizer, plain_optimizer = sgd(ddp), sgd(plain)
    for number, which in enumerate(("direct", name, "ring", "hierarchical", name, "parameter_server")):
        ddp.attached.switch(which)
        assert ddp.attached.name == parse(which).name
        trained(ddp, batches(place, 3)[:2], optimizer)
        trained(plain, batches(place, 3)[:2], plain_optimizer)
        assert which == name or parse(which).is_exact, number
    alike(place, name, ddp, plain)


def copied_and_saved(place, name):
    """A module with a strategy is saved and copied like any other; the strategy itself says why it cannot be."""
    ddp = trained(wrapped(place, name, network()), batches(place, 2))
    attached = ddp.__dict__.pop("attached")
    copied = pickle.loads(pickle.dumps(ddp.module))
    assert torch.equal(weights(copied), weights(ddp)) and torch.equal(weights(copy.deepcopy(ddp.module)), weights(ddp))
    # DDP pickles what it holds; nothing of ours is among it.
    assert not [key for key, value in vars(ddp).items() if "paceline" in type(value).__module__]
    try:
        pickle.dumps(attached.exchange)
    except TypeError as error:
        assert "state_dict" in str(error)
    else:
        raise AssertionError("threads were pickled")


def a_skipped_step(place, name):
    """A rank whose own gradients overflow skips a step; it counts, so that all ranks average at the same time."""
    ddp = wrapped(place, name, network())
    optimizer, scaler = sgd(ddp), torch.amp.GradScaler("cpu", init_scale=2.0)
    for number, batch in enumerate(batches(place, 6)):
        optimizer.zero_grad()
        loss = losses(ddp, batch)
        scaler.scale(loss * (float("inf") if number == 1 and place.rank == 0 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    mine = weights(ddp)
    assert ddp.attached.local.average_count == 3 and all(torch.equal(other, mine) for other in place.gathered(mine))


def averaged_at_every_step(place, name):
    """k = 1 with SGD that remembers nothing is plain DDP."""
    ddp, plain = (trained(wrapped(place, which, network()), batches(place, 5)) for which in (name, None))
    close(weights(ddp), weights(plain), rtol=1e-5, atol=1e-7)


def two_optimizers(place, name):
    """Each counts its own steps, and averages what it trains."""
    ddp = wrapped(place, name, network())
    parameters = list(ddp.parameters())
    optimizers = [torch.optim.SGD(parameters[:4], lr=0.1), torch.optim.Adam(parameters[4:], lr=0.01)]
    stranger = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)
    for batch in batches(place, 4):
        losses(ddp, batch).backward()
        for optimizer in (*optimizers, stranger):
            optimizer.step()
            optimizer.zero_grad()
    mine = weights(ddp)
    assert ddp.attached.local.average_count == 4 and all(torch.equal(other, mine) for other in place.gathered(mine))
    trained(ddp, batches(place, 1), optimizers[0])
    ddp.attached.average_parameters()
    assert all(torch.equal(other, weights(ddp)) for other in place.gathered(weights(ddp)))


def cases():
    """(case, strategy, place) of everything above."""
    everything = (*EXACT, *LOSSY)
    per_step = ("local_sgd:every=2", "direct+local_sgd:every=2")
    table = [
        (several_buckets, everything, ("2 on 2", "4 on 2")),
        (gradients_as_views_of_buckets, everything, ("2 on 2",)),
        (accumulation_without_sync, everything, ("2 on 2",)),
        (accumulation_with_sync, SOME, ("2 on 2",)),
        (uneven_inputs, everything, ("2 on 2",)),
        (uneven_inputs, ("direct",), ("4 on 2",)),
        (unused_parameters, everything, ("2 on 2",)),
        (static_graph, everything, ("2 on 2",)),
        (frozen_layers, everything, ("2 on 2",)),
        (mixed_dtypes, everything, ("2 on 2", "4 on 3")),
        (sparse_gradients, SOME[:-1], ("2 on 2",)),
        (two_models_in_one_loss, SOME, ("2 on 2", "4 on 4")),
        (
            fused_buckets,
            ("direct:fuse_mib=1", "direct:fuse_mib=1+int8", "direct:fuse_mib=1+powersgd:rank=2"),
            ("2 on 2",),
        ),
        (a_hook_of_the_script, SOME, ("2 on 2",)),
        (registered_as_torch_does, (*EXACT, *LOSSY[:-1]), ("2 on 2",)),
        (registered_as_torch_does, ("direct+bf16",), ("4 on 2",)),
        (refused_as_a_hook, per_step, ("2 on 2",)),
        (switched_between_steps, everything, ("2 on 2",)),
        (copied_and_saved, SOME, ("2 on 2",)),
        (a_skipped_step, per_step, ("2 on 2",)),
        (averaged_at_every_step, ("local_sgd:every=1", "direct+local_sgd:every=1"), ("4 on 2",)),
        (two_optimizers, per_step, ("4 on 2",)),
    ]
    return [(case, name, place) for case, names, places in table for place in places for name in names]
