"""Which Trainer is around a frame, by the module of the function that has the loop."""

import sys

import pytest

from paceline.parts.resume.worker.trainers import trainer_around

LOOP = "def loop(step):\n    for _ in range(1):\n        return step()\n"


def around(*modules):
    """What is found from a function that the functions of these modules call, the outermost first."""

    def step():
        return trainer_around(sys._getframe())

    for module in reversed(modules):
        space = {"__name__": module}
        exec(LOOP, space)
        step = lambda loop=space["loop"], inner=step: loop(inner)  # noqa: E731
    return step()


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        ("transformers.trainer", "transformers.Trainer", "trainer.train(resume_from_checkpoint="),
        ("lightning.pytorch.loops.fit_loop", "lightning.Trainer", 'trainer.fit(model, ckpt_path="last")'),
        ("pytorch_lightning.loops.fit_loop", "pytorch_lightning.Trainer", 'trainer.fit(model, ckpt_path="last")'),
    ],
)
def test_a_trainer_is_named_with_its_call(module, name, call):
    found = around("mine", module, "torch.optim.adamw")
    assert found.name == name and found.resumes.startswith(call)


def test_other_modules_are_no_trainer():
    assert around("mine", "transformers.trainer_utils", "accelerate.optimizer") is None
