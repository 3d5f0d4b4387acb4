"""Trainers of libraries: which one has the loop around the optimizer's step, and how it resumes by itself.

None of them can be continued exactly from outside. Where the loop of transformers.Trainer is, is in variables of its own function, and its
callbacks can neither read nor set that; its loader has taken a batch ahead when `on_step_end` is called. Lightning's callbacks see the
number of the batch, but its checkpoints hold neither the position of an ordinary DataLoader nor random numbers. So the Trainer's own
checkpoints are the way.
"""

from __future__ import annotations

from types import FrameType
from typing import NamedTuple


class Trainer(NamedTuple):
    """A Trainer of a library."""

    name: str
    """Package and class."""
    resumes: str
    """The call by which it goes on at its last checkpoint; at the first start it begins at the beginning."""


_LIGHTNING = (
    'trainer.fit(model, ckpt_path="last"), with the callback ModelCheckpoint(save_last=True, every_n_train_steps=N)'
)
# The module that has the loop, and all below it -> its Trainer.
_TRAINERS = {
    "transformers.trainer": Trainer(
        "transformers.Trainer",
        "trainer.train(resume_from_checkpoint=transformers.trainer_utils.get_last_checkpoint(args.output_dir)), with save_steps=N",
    ),
    "lightning.pytorch": Trainer("lightning.Trainer", _LIGHTNING),
    "pytorch_lightning": Trainer("pytorch_lightning.Trainer", _LIGHTNING),
    "composer.trainer": Trainer(
        "composer.Trainer", 'composer.Trainer(..., autoresume=True, run_name="...", save_folder="...")'
    ),
}


def trainer_around(frame: FrameType | None) -> Trainer | None:
    """The Trainer in whose loop a frame is; None: no Trainer that is known here."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        for name, trainer in _TRAINERS.items():
            if module == name or module.startswith(f"{name}."):
                return trainer
        frame = frame.f_back
    return None
