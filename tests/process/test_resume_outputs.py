"""What a killed and resumed script has written: the same bytes as undisturbed, in each way in which scripts write."""

import subprocess
import sys
import textwrap

import pytest
from variants import all_but

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

# Trains 9 steps. In attempt 0 it is killed in step 4, after it has written its line, in attempt 1 in step 7, before it.
TRAIN = """
import csv, json, logging, os, pathlib, shutil, signal, sys, uuid
import torch

kills = sys.argv[1:] == ["kills"]

def attempt():
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def killed(*place):
    if kills and (attempt(), *place) in ((0, 4, "after"), (1, 7, "before")):
        os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(3)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{prologue}
for step in range(1, 10):
    loss = model(torch.randn(4, 2)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    killed(step, "before")
    {write}
    killed(step, "after")
{end}
"""

# Prologue, what each step writes, end. Several are one script: @ is the number of the way there, in its names and in its paths.
WAYS = {
    "files that stay open": {
        "w": (
            'log@ = open("log@.txt", "w")\nlog@.write("begin\\n")',
            'log@.write(f"{step} {loss.item()!r}\\n")',
            "log@.close()",
        ),
        "w+": (
            'log@ = open("log@.txt", "w+")\nlog@.write("begin\\n")',
            'log@.write(f"{step} {loss.item()!r}\\n")',
            "log@.close()",
        ),
        "a": (
            'log@ = open("log@.txt", "a")\nlog@.write("begin\\n")',
            'log@.write(f"{step} {loss.item()!r}\\n"); log@.flush()',
            "log@.close()",
        ),
        "csv": (
            'log@ = open("log@.csv", "w", newline="")\nwriter@ = csv.writer(log@)\nwriter@.writerow(["step", "loss"])',
            "writer@.writerow([step, loss.item()])",
            "log@.close()",
        ),
        "FileHandler": (
            'log@ = logging.getLogger("train")\nlog@.addHandler(logging.FileHandler("log@.txt"))\nlog@.warning("begin")',
            'log@.warning("%d %r", step, loss.item())',
            'log@.warning("end")',
        ),
        "an old log is renamed": (
            'if os.path.exists("log@.txt"): os.rename("log@.txt", "log@.old")\nlog@ = open("log@.txt", "w")',
            'log@.write(f"{step} {loss.item()!r}\\n"); log@.flush()',
            "log@.close()",
        ),
    },
    "directories and files with other names": {
        "makedirs that must not exist": (
            'os.makedirs("outputs@/one", exist_ok=False)\nlog@ = open("outputs@/one/log.txt", "w")',
            'print(step, loss.item(), file=log@, flush=True)\nos.makedirs(f"outputs@/step{step}", exist_ok=False)',
            "log@.close()",
        ),
        "rmtree of what an earlier job had left, and nothing was there": (
            'if os.path.exists("outputs@"): shutil.rmtree("outputs@")\nos.mkdir("outputs@")\nlog@ = open("outputs@/log.txt", "w")',
            'print(step, loss.item(), file=log@, flush=True)\ntorch.save(loss.item(), f"outputs@/{step}.pt")',
            "log@.close()",
        ),
        "the last checkpoints stay": (
            'os.makedirs("outputs@", exist_ok=True)',
            'torch.save(loss.item(), f"outputs@/{step}.pt")\nif step > 2: os.remove(f"outputs@/{step - 2}.pt")',
            "",
        ),
        "a file that is written anew and renamed": (
            'pathlib.Path("best@.part").write_text("none"); os.replace("best@.part", "best@.txt")',
            'if step in (2, 6): pathlib.Path("best@.part").write_text(f"{step} {loss.item()!r}"); os.replace("best@.part", "best@.txt")',
            "",
        ),
    },
}  # fmt: skip


def together(ways):
    """Several ways as the parts of one script."""
    numbered = [[part.replace("@", str(number)) for part in way] for number, way in enumerate(ways)]
    return tuple("\n".join(parts) for parts in zip(*numbered, strict=True))


def text_of(prologue, write, end):
    return TRAIN.format(prologue=prologue, write=textwrap.indent(write, "    ").lstrip(), end=end)


def files(directory):
    """Path -> bytes of what is below a directory, and the directories."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


@pytest.fixture
def both(paceline):
    """Runs a script undisturbed and with its kills; returns the finished job and both directories."""

    def run(parts, *options, prepare=lambda directory: None, code=0):
        script = paceline.script("train.py", text_of(*parts))
        undisturbed, killed = (paceline.directory / name for name in ("undisturbed", "killed"))
        # Below the temporary directory of the machine nothing counts as an output.
        temporary = paceline.directory / "temporary"
        for directory in (undisturbed, killed, temporary):
            directory.mkdir()
            prepare(directory)
        environment = {**paceline.environment, "TMPDIR": str(temporary)}
        subprocess.run([sys.executable, script], cwd=undisturbed, env=environment, check=True, timeout=120)
        argv = ("run", "--resume", "auto", "--set", "fork_server=off", *options, script, "kills")
        finished = paceline.run(*argv, cwd=killed, timeout=120, TMPDIR=str(temporary))
        assert finished.code == code, finished.err
        assert paceline.left() == []
        return finished, files(undisturbed), without_recording(files(killed))

    return run


def without_recording(found):
    return {path: content for path, content in found.items() if not path.startswith(".paceline")}


@pytest.mark.parametrize("name", all_but(["files that stay open"], WAYS))
def test_two_kills_leave_the_files_of_an_undisturbed_run(name, both):
    finished, undisturbed, killed = both(together(WAYS[name].values()))
    assert "2 restarts, 2 resumed" in finished.err, finished.err
    assert killed == undisturbed


def earlier_outputs(directory):
    (directory / "outputs").mkdir()
    (directory / "outputs" / "log.txt").write_text("of an earlier job\n")


def test_a_script_that_removes_outputs_at_its_start_is_refused_and_begins_again(both):
    parts = (
        'shutil.rmtree("outputs")\nos.mkdir("outputs")\nlog = open("outputs/log.txt", "w")',
        "print(step, loss.item(), file=log, flush=True)",
        "log.close()",
    )
    finished, undisturbed, killed = both(parts, "--max-restarts", "2", prepare=earlier_outputs)
    assert "outputs`, and would remove it again after a restart (F13)" in finished.err, finished.err
    assert "resumed at step" not in finished.err
    assert killed == undisturbed


@pytest.mark.wide
def test_a_script_that_removes_at_a_restart_what_it_had_left_begins_again_before_anything_is_lost(both):
    parts = (
        'if os.listdir("outputs"): shutil.rmtree("outputs"); os.mkdir("outputs")',
        'torch.save(loss.item(), f"outputs/{step}.pt")',
        "",
    )
    finished, undisturbed, killed = both(
        parts, "--max-restarts", "2", prepare=lambda directory: (directory / "outputs").mkdir()
    )
    assert "the state of step 3 could not be put back: the job begins again from the beginning" in finished.err, (
        finished.err
    )
    assert killed == undisturbed


RUN_OF_A_TRACKER = (
    'run = pathlib.Path("runs", uuid.uuid4().hex)\n(run / "files").mkdir(parents=True)\nlog = (run / "files" / "log.txt").open("w")',
    'print(step, loss.item(), file=log)\nprint(step, file=(run / "steps.txt").open("a"))',
    "log.close()",
)


@pytest.mark.wide
def test_a_new_run_of_a_tracker_loses_no_line_of_the_one_before(both):
    finished, undisturbed, killed = both(RUN_OF_A_TRACKER)
    assert "2 restarts, 2 resumed" in finished.err, finished.err

    def lines(found, name):
        return sorted(
            line for path, content in found.items() if path.endswith(name) for line in content.decode().splitlines()
        )

    # The variable is put back, so that the step's own file is in the first run; the open file is in the run of its process.
    assert lines(killed, "log.txt") == lines(undisturbed, "log.txt")
    assert lines(killed, "steps.txt") == lines(undisturbed, "steps.txt")
    assert len([path for path in killed if path.endswith("steps.txt")]) == 1
    assert len([path for path in killed if path.endswith("log.txt")]) == 3


def test_an_event_file_of_tensorboard_has_each_step_once(both, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    parts = (
        'from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter("events")',
        'writer.add_scalar("loss", loss.item(), step)',
        "writer.close()",
    )
    finished, _, _ = both(parts)
    assert "2 restarts, 2 resumed" in finished.err, finished.err

    def scalars(name):
        found = []
        for path in sorted((tmp_path / name / "events").iterdir()):
            events = EventAccumulator(str(path)).Reload()
            found += [
                (one.step, one.value) for one in (events.Scalars("loss") if "loss" in events.Tags()["scalars"] else ())
            ]
        return sorted(found)

    assert scalars("killed") == scalars("undisturbed")
    assert [step for step, _ in scalars("killed")] == list(range(1, 10))
