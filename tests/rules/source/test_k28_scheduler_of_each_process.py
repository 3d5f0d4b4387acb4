"""K28: accelerate steps a schedule once for each process."""

import pytest

HEAD = """\
import torch
from accelerate import Accelerator
STEPS = 200
accelerator = Accelerator({options})
optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
scheduler = {scheduler}
optimizer, scheduler = accelerator.prepare(optimizer, scheduler)
{loop}
    optimizer.step()
    scheduler.step()
"""
LINEAR = "torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=STEPS)"
WHILE, FOR = "while done < STEPS:", "for step in range(STEPS):"


def script(*, options="cpu=True", scheduler=LINEAR, loop=WHILE):
    return HEAD.format(options=options, scheduler=scheduler, loop=loop)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"loop": FOR},
        {"scheduler": "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, STEPS)"},
        {"scheduler": "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)", "loop": "for step in range(0, STEPS):"},
    ],
)  # fmt: skip
def test_a_schedule_as_long_as_the_loop_is_over_too_early(found, job, changed):
    (finding,) = found("K28", job(script(**changed), ranks_per_host=4))
    assert finding.line == 6 and "4 times" in finding.what and finding.next == "STEPS * accelerator.num_processes"


@pytest.mark.parametrize(
    "changed",
    [
        {"options": "split_batches=True"},
        {"options": "step_scheduler_with_optimizer=False"},
        {"options": "**options"},
        {"options": "True, True"},
        # Of N times as many steps, one in four is the schedule's.
        {"options": "gradient_accumulation_steps=4"},
        {"loop": "while done < STEPS:\n    done += accelerator.num_processes"},
        {"loop": "STEPS = STEPS // accelerator.num_processes\n" + FOR},
        {"loop": FOR + "\n    pass\nfor batch in loader:"},
        # As long as the loader before it is shared out, or already N times as long.
        {"scheduler": "torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=len(loader) * 3)"},
        {"scheduler": "torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=STEPS * accelerator.num_processes)"},
        {"scheduler": "torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=WARMUP)"},
        {"scheduler": "torch.optim.lr_scheduler.StepLR(optimizer, STEPS)"},
        {"scheduler": "make_scheduler(optimizer, STEPS)"},
    ],
)
def test_other_schedules_are_left_alone(found, job, changed):
    assert not found("K28", job(script(**changed), ranks_per_host=4))


def test_one_rank_steps_it_once(found, job):
    assert not found("K28", job(script(), ranks_per_host=1))
