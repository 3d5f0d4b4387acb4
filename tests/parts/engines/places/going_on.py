"""What every engine promises of a job with `--resume auto`: killed and tried again, it goes on at the step that it has saved.

A file of losses is written by every attempt, wherever it runs. In the end it is that of a run that nothing has disturbed.
"""

import functools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from patience import patient

from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory

STEPS = 60
SCRIPT = f"""\
import os, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn({STEPS * 4}, 8), torch.randn({STEPS * 4}, 1))
loader = DataLoader(data, batch_size=4, shuffle=True)
with open(sys.argv[1], "w") as losses:
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(x) + torch.rand(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.write(f"{{step}} {{loss.item()!r}}\\n")
        losses.flush()
        # In its second half the first attempt makes no step before it is killed.
        while step >= {STEPS // 2} and not os.path.exists(sys.argv[2]):
            time.sleep(0.02)
"""


@functools.cache
def undisturbed() -> str:
    """The losses of a run that nobody kills, under plain Python."""
    with tempfile.TemporaryDirectory() as folder:
        script, losses = Path(folder, "train.py"), Path(folder, "losses")
        script.write_text(SCRIPT)
        subprocess.run([sys.executable, str(script), str(losses), str(script)], check=True)
        return losses.read_text()


@dataclass
class GoingOn:
    """A job that is killed once. `directory`: what every host sees; the script lies in `code`."""

    directory: Path

    def __post_init__(self) -> None:
        self.code.mkdir(exist_ok=True, parents=True)
        (self.code / "train.py").write_text(SCRIPT)

    @property
    def code(self) -> Path:
        return self.directory / "training"

    @property
    def losses(self) -> Path:
        return self.directory / "losses"

    @property
    def arguments(self) -> tuple[str, str]:
        """Of the script."""
        return str(self.losses), str(self.directory / "go")

    def until_saved(self, places: Callable[[], list[Path]], why: Callable[[], str]) -> None:
        """Wait until the first attempt stands in its middle and a step is saved there. `places`: directories of saved steps."""
        deadline = time.monotonic() + patient(90)
        while not (self.is_in_the_middle() and any(map(_has_saved, places()))):
            assert time.monotonic() < deadline, why()
            time.sleep(0.05)

    def go(self) -> None:
        """The first attempt is killed: the next one may go to the end."""
        (self.directory / "go").touch()

    def is_in_the_middle(self) -> bool:
        return self.losses.exists() and self.losses.read_text().count("\n") > STEPS // 2

    def check(self, second: Path) -> None:
        """The job has ended well. `second`: the recording of its last attempt."""
        run, events, _ = read_run((RunDirectory(second),))
        notices = [event["text"] for event in events if event["event"] == "notice"]
        assert run.exit_code == 0, (run, notices)
        assert any("goes on at step" in text and "(F01)" in text for text in notices), notices
        assert self.losses.read_text() == undisturbed()


def _has_saved(place: Path) -> bool:
    return any(place.glob("step-*/manifest.json"))
