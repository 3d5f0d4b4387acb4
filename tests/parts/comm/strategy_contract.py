"""What every strategy is held to, on flat buffers: how far from the plain average, the same on all ranks, bytes, memory.

One suite for all of them. What a strategy's docstring states is checked here, and nothing is looser here than there.
"""

import torch
import torch.distributed as dist
from strategy_ranks import EXACT, LOSSY, LOW_RANK, PLACES, bytes_sent, close, drawn

from paceline.parts.comm.strategies.flat_buffer import FlatBuffer
from paceline.parts.comm.strategies.strategy import StrategyRunner, parse

SIZES = (1, 3, 17, 1000, 4097, 300_001)
MIB = 1024 * 1024


def averaged(place, communicator, averaging, gradient, key=0, shapes=()):
    flat = gradient.clone()
    averaging.average(FlatBuffer(flat, shapes or (flat.shape,), key), communicator)
    communicator.receives.finish()
    return flat


def same_everywhere(place, tensor):
    for other in place.gathered(tensor):
        assert torch.equal(other, tensor), "ranks hold different averages"


def exact_average(place, name):
    """Allclose to the plain average in every dtype and size; bitwise with two ranks; the same bits on every rank."""
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for numel in SIZES:
            gradient = drawn(place.rank, numel, dtype, seed=numel)
            plain, average = place.plain(gradient), averaged(place, communicator, averaging, gradient)
            if dtype.itemsize >= 4:
                close(average, plain, rtol=1e-6, atol=1e-6)
                assert place.size > 2 or torch.equal(average, plain)
            else:
                close(average, plain, rtol=2e-2, atol=2e-2)
            same_everywhere(place, average)


def in_the_order_of_ranks(place, name):
    """One rank a host: bitwise the sum in the order of ranks times 1 / n, however it is cut."""
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    for numel in SIZES:
        every = [drawn(rank, numel) for rank in range(place.size)]
        total = every[0].clone()
        for other in every[1:]:
            total += other
        average = averaged(
            place,
            communicator,
            averaging,
            every[place.rank],
            shapes=(torch.Size([numel // 3]), torch.Size([numel - numel // 3])),
        )
        assert torch.equal(average, total.mul_(1.0 / place.size)), numel


def no_overflow_in_half(place, name):
    """float16: gradients whose sum overflows have an average all the same."""
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    average = averaged(place, communicator, averaging, torch.full((100,), 40000.0, dtype=torch.float16))
    assert bool((average == 40000.0).all()), average[0]


def bf16_rounds_twice(place, name):
    """Element by element: within 2^-8 of the mean of the ranks' magnitudes and the result's; in a ring times the number of ranks."""
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    roundings = place.size if name.startswith(("ring", "hierarchical")) else 1
    for numel in SIZES:
        gradient = drawn(place.rank, numel, seed=numel)
        plain, average = place.plain(gradient), averaged(place, communicator, averaging, gradient)
        bound = 2.0**-8 * roundings * (place.plain(gradient.abs()) + plain.abs()) + 1e-7
        assert bool(((average - plain).abs() <= bound).all())
        same_everywhere(place, average)


def int8_bound(place, name, gradient):
    """How far one exchange may be off: half a step of the scale for each message that a number goes through."""
    largest = place.plain(gradient.abs().max().reshape(1)).item()
    messages = place.size + 1 if name.startswith(("ring", "hierarchical")) else 2
    return messages * 1.05 * largest / 254


def int8_is_within_half_a_step(place, name):
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    for numel in SIZES:
        gradient = drawn(place.rank, numel, seed=numel)
        averaging.clear()
        average = averaged(place, communicator, averaging, gradient)
        assert (average - place.plain(gradient)).abs().max().item() <= int8_bound(place, name, gradient)
        same_everywhere(place, average)


def what_was_rounded_away_comes_later(place, name):
    """Over many steps of equal gradients the sum of the results is within one step's error of the sum of the plain averages."""
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    gradient, total = drawn(place.rank, 5000), torch.zeros(5000)
    plain, bound = place.plain(gradient), 2 * int8_bound(place, name, gradient)
    for step in range(1, 31):
        total += averaged(place, communicator, averaging, gradient)
        assert (total - step * plain).abs().max().item() <= bound, step
    lost = averaging.errors.extra_bytes()
    averaging.clear()
    assert averaging.errors.extra_bytes() == 0 < lost


def an_infinity_is_seen_and_forgotten(place, name):
    """A loss scaler must find it in the average of every rank, and the next step must be well again."""
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    shapes = (torch.Size([50, 40]),)
    gradient = drawn(place.rank, 2000)
    broken = gradient.clone()
    if place.rank == 0:
        broken[7] = float("inf")
    averaged(place, communicator, averaging, gradient, shapes=shapes)
    assert not torch.isfinite(averaged(place, communicator, averaging, broken, shapes=shapes)).all()
    after = averaged(place, communicator, averaging, gradient, shapes=shapes)
    assert torch.isfinite(after).all()
    same_everywhere(place, after)


def low_rank_is_exact(place, name):
    """A gradient of no more than the rank is averaged exactly; vectors always are."""
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    shapes = (torch.Size([60, 40]), torch.Size([33]), torch.Size([8, 5, 6, 2]))
    columns = drawn(9, 60).outer(drawn(8, 40)) + drawn(7, 60).outer(drawn(6, 40))
    share = (place.rank + 1.0) * columns
    gradient = torch.cat(
        [share.flatten(), drawn(place.rank, 33), drawn(5, 8).outer(drawn(4, 60)).flatten() * place.rank]
    )
    plain = place.plain(gradient)
    for _ in range(3):
        average = averaged(place, communicator, averaging, gradient, shapes=shapes)
        assert (average - plain).norm() <= 1e-4 * plain.norm()
        same_everywhere(place, average)


def low_rank_leaves_nothing_behind(place, name):
    """What the product lacks stays bounded, and is not lost: the sum over steps keeps up with the plain sum."""
    communicator, averaging = place.communicator(), StrategyRunner(parse(name))
    shapes = (torch.Size([40, 30]),)
    gradient, total, off = drawn(place.rank, 1200), torch.zeros(1200), []
    plain = place.plain(gradient)
    for step in range(1, 61):
        total += averaged(place, communicator, averaging, gradient, shapes=shapes)
        off.append(((total - step * plain).norm() / plain.norm()).item())
    # Rank 2 of 30: about 15 steps until every direction has had its turn.
    assert max(off[30:]) <= 1.2 * max(off[:30]) and off[-1] / 60 < 0.35, off


def stated_bytes(name, place, numel):
    """Bytes that a rank gives to the network in one exchange of float32, by the docstrings."""
    n, h = place.size, place.hosts
    local = n // h
    size = 4 * numel * {"bf16": 0.5, "int8": 260 / 256 / 4}.get(name.rpartition("+")[2], 1.0)
    base = name.partition("+")[0]
    if base in ("ring", "parameter_server"):
        return 2 * size * (n - 1) / n
    return 2 * size / local * (h - 1) / h


def bytes_are_as_stated(place, name):
    """By the communicator's count, and by the kernel's: what travels really is 16 or 8 bits where the name says so."""
    communicator, averaging, numel = place.communicator(), StrategyRunner(parse(name)), 1 << 18
    # Whole tensors for the parameter server, in equal shares.
    shapes = (torch.Size([numel // 8]),) * 8
    averaged(place, communicator, averaging, drawn(place.rank, numel), shapes=shapes)
    dist.barrier(place.group)
    counted, before = communicator.sent_bytes, bytes_sent()
    averaged(place, communicator, averaging, drawn(place.rank, numel), shapes=shapes)
    counted = communicator.sent_bytes - counted
    # Once every rank has everything, no byte is left in a buffer of the kernel.
    dist.barrier(place.group)
    sent = sum(total - before[connection] for connection, total in bytes_sent().items() if connection in before)
    # A connection that the other side has closed is not counted.
    dist.barrier(place.group)
    stated = stated_bytes(name, place, numel)
    assert abs(counted - stated) <= 0.01 * stated + 64, (counted, stated)
    # gloo's headers and notices, 50 bytes a message.
    assert stated <= sent <= 1.02 * stated + 20_000, (sent, stated)


def memory_is_as_stated(place, name):
    """What stands ready on this rank after an exchange: boxes, errors, the host's shared memory apart."""
    communicator, averaging, numel = place.communicator(), StrategyRunner(parse(name)), 1 << 19
    shapes = (torch.Size([numel // 8]),) * 8
    for _ in range(2):
        averaged(place, communicator, averaging, drawn(place.rank, numel), shapes=shapes)
    n, h, size = place.size, place.hosts, 4 * numel
    local, (base, _, wrapper) = n // h, name.partition("+")
    codec = {"bf16": 0.5, "int8": 0.26}.get(wrapper, 1.0)
    part = size / local
    boxes = {
        "ring": 0.0 if not wrapper else 2 * size / n,
        "hierarchical": 0.0 if h == 1 else 2 * part / h,
        "direct": part * (h - 1) / h,
        "parameter_server": size * (n - 1) / n,
    }[base] * codec
    if wrapper.startswith("int8"):
        boxes += (
            part
            if base in ("hierarchical", "direct") and h > 1
            else size
            if base not in ("hierarchical", "direct")
            else 0
        )
    host = communicator.host.extra_bytes() if communicator.host else 0
    held = communicator.extra_bytes() + averaging.extra_bytes() - host
    assert held <= 1.02 * boxes + 16 * 4096 * n, (held, boxes)
    assert host <= 8 * MIB + 64 * 1024


def cases():
    """(case, strategy, place) of everything above."""
    every = tuple(PLACES)
    regular = tuple(name for name in every if name != "4 on 3")
    apart = ("2 on 2", "4 on 4")
    table = [
        (exact_average, EXACT, every),
        (in_the_order_of_ranks, ("direct", "parameter_server"), apart),
        (no_overflow_in_half, EXACT, ("2 on 2", "4 on 2")),
        (bf16_rounds_twice, [name for name in LOSSY if "bf16" in name], every),
        (int8_is_within_half_a_step, [name for name in LOSSY if "int8" in name], every),
        (what_was_rounded_away_comes_later, [name for name in LOSSY if "int8" in name], (*apart, "4 on 2")),
        (an_infinity_is_seen_and_forgotten, (*EXACT, *LOSSY, *LOW_RANK), apart),
        (low_rank_is_exact, LOW_RANK, every),
        (low_rank_leaves_nothing_behind, LOW_RANK, apart),
        (bytes_are_as_stated, (*EXACT, *LOSSY), regular),
        (memory_is_as_stated, (*EXACT, *LOSSY), regular),
    ]
    return [(case, name, place) for case, names, places in table for place in places for name in names]
