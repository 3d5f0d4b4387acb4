"""Runs whose steps were saved: by stand-ins for two ranks, and by a rank with a model."""

import json
import os
import sys
from contextlib import contextmanager

import torch
from kept_state import Rank

from paceline.facts import Job, Program, ProgramKind
from paceline.parts.resume import resume_from
from paceline.parts.resume.agent.save_newest_step import StateSaving
from paceline.parts.resume.agent.saved_job import facts_of
from paceline.parts.resume.recording.saved_state import JobFacts
from paceline.parts.resume.recording.state_buffer import DOCUMENT, new_buffer, packed
from paceline.parts.resume.state_store import state_store
from paceline.parts.resume.worker.kinds import Context
from paceline.parts.resume.worker.object_graph import Capture
from paceline.parts.resume.worker.slots import StateSlots

PYTHON = VERSION = sys.version.split()[0]
JOB = JobFacts(run_id="r-1", script="/t.py", script_sha256="00", hash_seed="7")


class NoLoaders:
    pass


def keep(descriptor, step, main, python):
    """Write a slot as a rank does."""
    capture = Capture(Context(NoLoaders()))
    kept = dict.fromkeys(DOCUMENT) | {
        "modules": {"__main__": capture.variables(main)}, "frames": [], "others": [[], []], "extra": [],
        "nodes": capture.nodes, "described": capture.described, "versions": (python, str(torch.__version__)),
    }  # fmt: skip
    StateSlots(descriptor).write(step, capture.tensors, capture.described, packed(tuple(kept.values())))


def saved_run(folder, *, python=PYTHON, steps=(6, 7)):
    """A run r-1 below the folder whose steps were saved, and its model and optimizer as they are at the last one."""
    (folder / "r-1").mkdir(parents=True)
    (folder / "r-1/run.json").write_text(json.dumps({"schema": "paceline.run/3", "id": "r-1"}))
    model = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    descriptor = new_buffer()
    saving = StateSaving([descriptor], state_store(str(folder / "r-1/state")), JOB)
    for step in steps:
        model(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        keep(descriptor, step, {"model": model, "optimizer": optimizer, "none": torch.empty(0, 4)}, python)
        saving.save()
    os.close(descriptor)
    return model, optimizer


@contextmanager
def saved_by_two_ranks(tmp_path, monkeypatch):
    """Steps 6 and 7 of two ranks, saved in the directory of run r-1."""
    # Runs are found in the directories of others too, by the index of their user.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "index"))
    script = tmp_path / "train.py"
    script.write_text("a script")
    (tmp_path / "r-1").mkdir()
    (tmp_path / "r-1/run.json").write_text(json.dumps({"schema": "paceline.run/3", "id": "r-1"}))
    monkeypatch.setattr(resume_from, "_versions", lambda environ: (VERSION, "2.13.0+cpu"))
    ranks = [Rank(python=VERSION), Rank(python=VERSION)]
    facts = facts_of(job(tmp_path, "r-1"), "r-1", "77")
    saving = StateSaving([rank.descriptor for rank in ranks], state_store(str(tmp_path / "r-1/state")), facts)
    for step in (6, 7):
        for rank in ranks:
            rank.keep(step)
        saving.save()
    yield tmp_path
    for rank in ranks:
        os.close(rank.descriptor)


def job(folder, name, ranks=2, **more):
    program = Program(kind=ProgramKind.SCRIPT, target=str(folder / "train.py"))
    return Job(name="j", program=program, ranks_per_host=ranks, **{"resume": True, "resume_from": str(name), **more})
