"""What the documentation tells a reader to type runs: console blocks in a clone, with a PATH that has only what the text put there."""

import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from ports import free_port

PAGES_WITH_COMMANDS = ("README.md", "docs/tutorial.md")

# Blocks of those pages that are not executed, by their first line: here are the reasons. Blocks of text are output.
BLOCKS_THAT_DO_NOT_RUN = {
    "paceline run --nnodes 2 --node-rank 0 --master-addr NAME-OF-MACHINE-1": "needs two machines",
    "paceline run --hosts machine1,machine2": "needs two machines",
}

# Where make, git and the shell's own tools are; nothing of paceline is there.
SYSTEM_PATH = os.pathsep.join(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])

FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_every_block_runs_or_has_a_reason(repository, page):
    for match in FENCE.finditer((repository / page).read_text()):
        known = any(match["text"].startswith(line) for line in BLOCKS_THAT_DO_NOT_RUN)
        assert match["kind"] in ("console", "text") or known, match[0]


@pytest.mark.slow_but_first
@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_the_console_blocks_run_in_a_clone(repository, page, tmp_path, user_environment):
    if shutil.which("make", path=SYSTEM_PATH) is None:
        pytest.skip("no make")
    assert shutil.which("paceline", path=SYSTEM_PATH) is None
    commands = console_commands(repository / page)
    assert commands
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", as_one_session(commands)],
        cwd=clone(repository, tmp_path / "paceline"),
        env=environment_of_a_newcomer(user_environment, tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"


def test_the_program_of_the_page_about_machines_writes_a_table(repository, recording, tmp_path, user_environment):
    made = recording()
    made.identity()
    sample = {
        "t_ns": 1,
        "cpu": {"busy_fraction": 0.5},
        "memory": {"used_bytes": 7},
        "network": {"eth0": {"received_bytes": 3, "sent_bytes": 4}, "eth1": {"received_bytes": 10, "sent_bytes": 0}},
        "gpus": [{"busy_fraction": 0.9}],
    }
    made.telemetry("algo-1", sample)
    printed = run_program(repository / "docs/howto/machines.md", user_environment, tmp_path, str(made.path))
    assert printed.splitlines()[1] == "algo-1,1,0.5,7,13,4,[0.9]"


@pytest.mark.slow
@pytest.mark.process
def test_the_lines_of_the_page_about_restarts_resume_on_both_hosts(repository, tmp_path, user_environment):
    (tmp_path / "train.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "import torch\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "rank, steps = dist.get_rank(), 260\n"
        "model = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "made = []\n"
        "def train_one_step():\n"
        "    made.append(step)\n"
        "    if step == 250 and os.environ['PACELINE_ATTEMPT'] == '0':\n"
        "        raise SystemExit(7)\n"
        f"{python_block(repository / 'docs/howto/restarts.md')}\n"
        "print('rank', rank, 'began at', made[0], flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-m", "paceline", "run", "--local-hosts", "2", "--max-restarts", "1", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env=user_environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"rank 0 began at 201", "rank 1 began at 201"} <= set(done.stdout.splitlines())


def console_commands(page: Path) -> list[tuple[str, int]]:
    """Each command with the exit code that the output below it shows; 0 where it shows none."""
    found = []
    for match in FENCE.finditer(page.read_text()):
        if match["kind"] == "console":
            for part in re.split(r"^\$ ", match["text"], flags=re.MULTILINE)[1:]:
                shown = re.search(r"\bexit (\d+)\b", part)
                found.append((part.splitlines()[0], int(shown[1]) if shown else 0))
    return found


def as_one_session(commands: list[tuple[str, int]]) -> str:
    """A script in which what one command does to the shell holds for the next; it ends at the first unexpected exit code."""
    lines = []
    for command, code in commands:
        told = shlex.quote(f"$ {command}: exit code, and the one that was expected:")
        lines += [command, f"code=$?; [ $code = {code} ] || {{ echo {told} $code {code} >&2; exit 99; }}"]
    return "\n".join(lines)


def clone(repository: Path, folder: Path) -> Path:
    """What a clone has that the commands need, and a .venv as `make install` leaves it: .ci/run makes a real one first of all."""
    for name in ("src", "examples"):
        shutil.copytree(repository / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(repository / name, folder / name)
    venv.create(folder / ".venv", symlinks=True)
    (packages,) = (folder / ".venv").glob("lib/python*/site-packages")
    lines = [str(folder / "src"), *(f"import site; site.addsitedir({there!r})" for there in site.getsitepackages())]
    (packages / "clone.pth").write_text("\n".join(lines) + "\n")
    for name, module in (("paceline", "paceline.cli"), ("torchrun", "torch.distributed.run")):
        program = folder / ".venv/bin" / name
        program.write_text(f"#!{folder}/.venv/bin/python\nfrom {module} import main\nraise SystemExit(main())\n")
        program.chmod(0o755)
    stamps = folder / ".venv/.paceline"
    stamps.mkdir()
    for name in ("torch", "dev"):
        (stamps / name).touch()
    return folder


def environment_of_a_newcomer(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """Nothing of this Python on PATH; a home of its own, and a free port, since 29500 may be taken on a machine that runs tests."""
    (folder / "home").mkdir()
    kept = {
        name: value for name, value in environment.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "XDG_"))
    }
    return kept | {"PATH": SYSTEM_PATH, "HOME": str(folder / "home"), "PET_MASTER_PORT": str(free_port())}


def with_paceline(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """A PATH on which `paceline` is this Python's, installed or not."""
    program = folder / "bin" / "paceline"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nexec python -m paceline "$@"\n')
    program.chmod(0o755)
    return environment | {"PATH": f"{program.parent}{os.pathsep}{environment['PATH']}"}


def python_block(page: Path) -> str:
    (block,) = (match["text"] for match in FENCE.finditer(page.read_text()) if match["kind"] == "python")
    return block


def run_program(page: Path, environment: dict[str, str], folder: Path, *arguments: str) -> str:
    """What the only Python block of a page prints."""
    (folder / "program.py").write_text(python_block(page))
    command = [sys.executable, "program.py", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
