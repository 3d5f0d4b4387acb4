"""Lines that people type who do not know us yet: each is refused before anything starts, with one code and with what to type next.

`data/wrong_lines.tsv` has them: the words, the code, and the next step, in which {here} is the directory. A new line is added with what it
should say; the second test then holds the answer to its word.
"""

import os
import re
import shlex
from pathlib import Path

import pytest

from paceline import cli
from paceline.cli import main
from paceline.cli.run.verb import would_run
from paceline.facts import Run
from paceline.recording.runs import create_run, write_run

LINES = [line.split("\t") for line in (Path(__file__).parent / "data/wrong_lines.tsv").read_text().splitlines()]
# Words that stand for what only the user knows.
UNKNOWN = re.compile(r"\b[A-Z]{2,}|/the/|, or |instead of|node1")
SCRIPT = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
for step in range(5):
    model(torch.ones(2, 4)).sum().backward()
"""
FILES = {
    "hi.py": b"print('hi')\n",
    "train.py": SCRIPT.encode(),
    "my train.py": SCRIPT.encode(),
    "many.py": b"import os\nx = (\n",
    "bin.py": bytes(range(256)),
    "pkg/__init__.py": b"",
    "start": b"#!/bin/sh\necho hi\n",
    "bad.json": b"{",
    "hp.json": b'{"lr": "0.1"}',
    "list.json": b"[1]",
    "net.pt": b"PK\3\4",
    "out.py": b"open('/opt/ml/model/x', 'w')\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith(("PET_", "PACELINE_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "pkg").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "broken.py").symlink_to("nothing.py")
    for place, run in enumerate(("r-f067ff", "r-b5a1c4")):
        made = create_run(tmp_path / ".paceline" / "runs", run)
        write_run(
            Run(
                id=run,
                name="train",
                directory=str(made.path),
                command=("train.py",),
                started_ns=place + 1,
                first_host="a",
            )
        )
    return tmp_path


@pytest.mark.parametrize(("typed", "code", "next_step"), LINES, ids=[line[0] for line in LINES])
def test_each_is_refused_with_what_to_type_next(typed, code, next_step, here, capsys):
    assert main(shlex.split(typed)) in (2, 3)
    lines = capsys.readouterr().err.splitlines()
    (error,) = (line for line in lines if line.startswith("error["))
    assert error.startswith(f"error[{code}]: ")
    (found,) = (line.split(maxsplit=1)[1] for line in lines if line.startswith("  next "))
    assert found == next_step.replace("{here}", str(here))


@pytest.mark.parametrize(
    ("typed", "next_step"),
    [(line[0], line[2]) for line in LINES if line[2].startswith("paceline ") and not UNKNOWN.search(line[2])],
)
def test_what_is_to_be_typed_next_is_another_line(typed, next_step, capsys):
    main(shlex.split(typed))
    (refused,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error["))
    cli.guarded(lambda: tried(shlex.split(next_step)[1:]), [])
    assert refused not in capsys.readouterr().err


def tried(argv) -> int:
    """The exit code of a command line; of a verb that would start ranks or not end, its words are only read."""
    if argv[0] == "run" and "--help" not in argv:
        would_run(argv[1:], os.environ)
    elif argv[0] in ("bench", "submit") and "--help" not in argv:
        cli.verb_module(argv[0]).parse(argv[1:])
    elif argv[0] not in ("top", "web", "sagemaker-local", "plan", "stop") and "--follow" not in argv:
        return main(argv)
    return 0
