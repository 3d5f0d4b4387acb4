"""Jobs with `--resume auto` in which something breaks what a resume needs: said, refused or stopped, and never trained on silently."""

import json
import re
import signal
import subprocess

import pytest
from dead_store import DeadStore
from summing_job import KILL, RANK, begun, done, events, ran

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

DIES = "    for of_attempt, of_rank"
BEFORE_DEATH = "    if [attempt(), rank, number] in [death[:3] for death in plan['dies']]:\n        sabotage()\n"
IMPORTS = "import torch\nimport torch.distributed"
EARLY = "state_descriptor = int(os.environ.get('PACELINE_STATE_FD', -1))\n"


def with_sabotage(text):
    """The script, with a function `sabotage` of these lines, which is called in the step in which a rank dies."""
    body = "".join(f"    {line}\n" for line in text.strip().splitlines())
    changed = RANK.replace(IMPORTS, f"{EARLY}def sabotage():\n{body}{IMPORTS}", 1).replace(DIES, BEFORE_DEATH + DIES, 1)
    assert BEFORE_DEATH in changed and EARLY in changed
    return changed


FLIP = """
from paceline.parts.resume.recording.state_buffer import SLOT_AT, StateHeader
header = StateHeader(state_descriptor)
for slot in header.slots()[:{slots}]:
    at = SLOT_AT[slot.number] + slot.tensor_bytes + slot.plain_bytes // 2
    os.pwrite(state_descriptor, bytes([os.pread(state_descriptor, 1, at)[0] ^ 1]), at)
"""


def test_of_a_damaged_state_the_one_before_is_taken(paceline):
    text = with_sabotage(FLIP.format(slots=1))
    finished, lines = ran(paceline, "--nproc-per-node", "2", dies=[(0, 1, 6, KILL)], text=text)
    assert begun(lines, 1) == {0: (4, 10), 1: (4, 10)} and done(lines) == [36, 36]
    assert "the state that rank 1 has kept of step 5 is damaged and not used (F04)" in finished.err


@pytest.mark.wide
def test_without_an_undamaged_state_the_job_begins_again_and_says_what_it_costs(paceline):
    finished, lines = ran(paceline, dies=[(0, 0, 6, KILL)], text=with_sabotage(FLIP.format(slots=2)))
    assert begun(lines, 1) == {0: (0, 0)} and done(lines) == [36]
    assert finished.err.count("is damaged and not used (F04)") == 2
    assert "no step is kept that all ranks can go on from: 5 steps made again" in finished.err


@pytest.mark.parametrize(
    "cell",
    [
        "PLAIN_BYTES_0",
        *(pytest.param(cell, marks=pytest.mark.wide) for cell in ("TENSOR_BYTES_0", "STEP_0", "PLAIN_CRC_0")),
    ],
)
def test_numbers_of_the_header_that_cannot_be_are_no_state(paceline, cell):
    text = with_sabotage(
        f"""
from paceline.parts.resume.recording.state_buffer import StateCell, StateHeader
header = StateHeader(state_descriptor)
for slot in header.slots():
    header.cells[StateCell.{cell} + slot.number] = (1 << 64) - 1 - slot.step
"""
    )
    finished, lines = ran(paceline, dies=[(0, 0, 6, KILL)], text=text)
    assert begun(lines, 1) == {0: (0, 0)} and done(lines) == [36] and "(F04)" in finished.err


@pytest.mark.parametrize("edited", ["in its loop", pytest.param("in its last line", marks=pytest.mark.wide)])
def test_a_script_that_is_edited_while_the_job_runs_is_not_resumed(paceline, edited):
    edit = (
        ("total += number", "total += 2 * number")
        if edited == "in its loop"
        else ('"done": total', '"done": 7 * total')
    )
    text = with_sabotage(f"text = open(sys.argv[0]).read()\nopen(sys.argv[0], 'w').write(text.replace{edit!r})")
    finished, lines = ran(paceline, dies=[(0, 0, 6, KILL)], text=text)
    assert "train.py was edited after the job had begun (F05)" in finished.err
    # What follows is the edited script, from its beginning.
    assert begun(lines, 1) == {} and begun(lines, 2) == {0: (0, 0)} and done(lines) in ([72], [252])


@pytest.mark.wide
def test_a_buffer_that_is_too_small_leaves_the_training_as_it_is(paceline):
    text = with_sabotage("pass").replace(
        "total, held = 0, []",
        "from paceline.parts.resume.recording.state_buffer import StateCell, StateHeader\n"
        "StateHeader(state_descriptor).cells[StateCell.ROOM_BYTES] = 4096\ntotal, held = 0, []",
    )
    finished, lines = ran(paceline, text=text)
    assert done(lines) == [36] and "and this rank may take 0 MiB (F13)" in finished.err
    finished, lines = ran(paceline, text=text, dies=[(0, 0, 6, KILL)], code=137)
    assert "resumed at" not in finished.err


CLOSES = "os.closerange(3, 256)\n"
# The files get the numbers that were closed.
REUSES = (
    CLOSES
    + "mine = [open(f'mine{number}', 'w+b') for number in range(60)]\n[file.write(b'mine' * 9999) for file in mine]\n"
)


@pytest.mark.parametrize("closes", [pytest.param(CLOSES, marks=pytest.mark.wide), REUSES], ids=["closed", "reused"])
@pytest.mark.parametrize("where", [pytest.param("before torch", marks=pytest.mark.wide), "after torch"])
def test_a_script_that_closes_every_descriptor_trains_and_keeps_its_own_files(paceline, closes, where):
    place = IMPORTS if where == "before torch" else "dist.init_process_group"
    text = RANK.replace(place, closes + place, 1)
    _, lines = ran(paceline, text=text)
    assert done(lines) == [36]
    for file in paceline.directory.glob("mine*"):
        assert file.read_bytes() == b"mine" * 9999, file


def test_a_killed_rank_of_a_script_that_closed_every_descriptor_is_never_resumed_wrongly(paceline):
    text = RANK.replace("dist.init_process_group", CLOSES + "dist.init_process_group", 1)
    finished, _ = ran(paceline, text=text, dies=[(0, 0, 6, KILL)], code=137)
    assert "(F13)" in finished.err and "resumed at" not in finished.err


def test_ranks_that_are_killed_while_they_resume_are_resumed_from_the_same_step(paceline):
    text = RANK.replace(
        "total, held = 0, []", "total, held = 0, []\nif attempt() == 1:\n    os.kill(os.getpid(), 9)", 1
    )
    _, lines = ran(paceline, "--nproc-per-node", "2", dies=[(0, 0, 6, KILL)], text=text)
    assert begun(lines, 2) == {0: (5, 15), 1: (5, 15)} and done(lines) == [36, 36]


def test_a_stop_while_the_ranks_resume_ends_the_job(paceline):
    waits = "total, held = 0, []\nif attempt() == 1:\n    open('resuming', 'w').close()\n    time.sleep(600)"
    script = paceline.script("train.py", RANK.replace("total, held = 0, []", waits, 1))
    argv = ("run", "--resume", "auto", "--set", "fork_server=off", script, '{"dies": [[0, 0, 6, 9]]}')
    job = paceline.start(*argv)
    job.until((paceline.directory / "resuming").exists)
    job.process.send_signal(signal.SIGINT)
    assert job.wait().code == 130 and paceline.left() == []
    assert [event["resume_step"] for event in events(paceline, "restart")] == [5]


# ------------------------------------------------------------------------------------------------------ where it is saved

# Rank 0 waits for the test in these steps of the first attempt.
WAITS = """
    for at, name in ((3, "break"), (6, "go")):
        while [attempt(), rank, number] == [0, 0, at] and not os.path.exists(name):
            time.sleep(0.02)
"""
TRAINS = "    model(torch.ones(1, 2))"


def started(paceline, *options, **environment):
    """A job of two ranks that waits in its steps 3 and 6, and in which rank 1 is killed in step 6."""
    assert TRAINS in RANK
    script = paceline.script("train.py", RANK.replace(TRAINS, WAITS + TRAINS, 1))
    argv = (
        "run",
        "--set",
        "run_id=r-1",
        "--resume",
        "auto",
        "--set",
        "fork_server=off",
        "--nproc-per-node",
        "2",
        *options,
    )
    return paceline.start(*argv, script, '{"dies": [[0, 1, 6, 9]]}', **environment)


def saved_in(place):
    return any(place.rglob("manifest.json"))


def resumed_all_the_same(paceline, job):
    finished = job.wait(120)
    assert finished.code == 0, finished.err
    lines = [json.loads(line) for line in finished.out.splitlines() if line.startswith("{")]
    # The state in memory is not lost with the place on the disk.
    assert begun(lines, 1)[0][0] >= 5 and done(lines) == [36, 36]
    assert paceline.left() == []
    return finished


@pytest.mark.wide
def test_a_full_disk_is_said_once_and_costs_the_training_nothing(paceline):
    disk = paceline.directory / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a disk of its own needs root")
    try:
        job = started(paceline, "--checkpoints", f"file://{disk}")
        job.until(lambda: saved_in(disk))
        with pytest.raises(OSError, match="No space"), (disk / "full").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        (paceline.directory / "break").touch()
        job.until(lambda: "(F06)" in job.err)
        (paceline.directory / "go").touch()
        finished = resumed_all_the_same(paceline, job)
        assert finished.err.count("(F06)") == 1 and "No space left on device" in finished.err
        assert re.search(r"the last saved step is \d+, the training goes on \(F06\)", finished.err)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.wide
def test_a_store_that_answers_no_more_costs_the_training_nothing_and_is_said_at_its_end(paceline):
    pytest.importorskip("fsspec")
    store = DeadStore(paceline.directory)
    job = started(paceline, "--checkpoints", store.url, **store.variables)
    job.until(lambda: saved_in(store.place))
    store.die()
    for name in ("break", "go"):
        (paceline.directory / name).touch()
    finished = resumed_all_the_same(paceline, job)
    assert "could not be removed" in finished.err and finished.err.count("(F06)") == 1
    store.live()
