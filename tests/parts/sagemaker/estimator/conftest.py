"""An estimator over the fake engine, in a project of its own: nothing runs, what would be asked is kept."""

from dataclasses import replace

import pytest

from paceline import estimator as room
from paceline.parts.sagemaker.estimator.session import surroundings


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with a script, which is where Python was started."""
    directory = tmp_path / "project"
    (directory / "src").mkdir(parents=True)
    (directory / "src" / "train.py").write_text("print('loss=0.5')\n")
    (directory / "alone.py").write_text("print('alone')\n")
    monkeypatch.chdir(directory)
    monkeypatch.delenv("PACELINE_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return directory


@pytest.fixture
def make(project):
    """Makes an estimator by its class's name; without other wishes it is a script on two hosts of the fake engine."""

    def build(class_name="PyTorch", **arguments):
        usual = {"entry_point": "train.py", "source_dir": "src", "instance_count": 2}
        if "instance_type" not in arguments and "engine" not in arguments:
            usual["engine"] = "fake"
        if "instance_groups" in arguments:
            usual.pop("instance_count")
            usual.pop("engine", None)
        made = getattr(room, class_name)(**{**usual, **arguments})
        made.around = lambda: replace(surroundings(), pause=lambda seconds: None)
        return made

    return build
