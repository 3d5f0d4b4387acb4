"""What follows from the end of one attempt of a Slurm job: its code, and whether the job starts again."""

import json
import subprocess
import sys

import pytest

from paceline.parts.engines.slurm.attempt_end import AttemptFacts, decide, read_facts


def an_end(**said):
    plain = {"asked": "", "srun_code": 1, "first_code": 1, "failed_code": None, "left": 1}
    return AttemptFacts(**{**plain, "is_cancelled": False, "ran_out_of_time": False, **said})


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        # The script: its own code, and no second try.
        ({"srun_code": 0, "first_code": 0}, (0, "end")),
        ({"first_code": 3}, (3, "end")),
        ({"srun_code": 5, "first_code": 0}, (5, "end")),
        # A host: started again.
        ({"first_code": 200}, (200, "requeue")),
        ({"srun_code": 137, "first_code": None}, (201, "requeue")),
        ({"srun_code": 137, "first_code": None, "failed_code": 7}, (7, "requeue")),
        ({"srun_code": 127, "first_code": None}, (127, "end")),
        # The first agent was told to end because another one had failed.
        ({"first_code": 143, "failed_code": 9}, (9, "end")),
        ({"first_code": 137}, (137, "end")),
        # A limit of Slurm's, a preemption, a limit of the job's own.
        ({"asked": "time limit", "first_code": 143}, (204, "requeue")),
        ({"asked": "time limit", "first_code": None}, (204, "requeue")),
        ({"asked": "time limit", "first_code": 204}, (204, "requeue")),
        ({"asked": "time limit", "srun_code": 0, "first_code": 0}, (0, "end")),
        ({"first_code": 204}, (204, "requeue")),
        ({"first_code": 204, "ran_out_of_time": True}, (204, "end")),
        # Somebody cancelled it.
        ({"asked": "cancelled", "first_code": 143, "is_cancelled": True}, (204, "end")),
        ({"asked": "cancelled", "first_code": 204}, (204, "end")),
        ({"asked": "cancelled", "first_code": 200, "is_cancelled": True}, (200, "end")),
    ],
)
def test_an_end_has_a_code_and_what_follows(said, answer):
    assert decide(an_end(**said)) == answer


@pytest.mark.parametrize("said", [{"first_code": 200}, {"first_code": 204}, {"asked": "time limit", "first_code": 143}])
def test_nothing_starts_again_without_an_attempt_left_or_after_a_cancellation(said):
    assert decide(an_end(**said))[1] == "requeue"
    assert decide(an_end(**said, left=0))[1] == "end"
    assert decide(an_end(**said, is_cancelled=True))[1] == "end"


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "r-1" / "slurm").mkdir(parents=True)
    return tmp_path / "r-1"


def test_the_files_of_one_attempt_say_how_it_ended(run_dir):
    folder = run_dir / "slurm"
    (folder / "r-1.2.0.end").write_text("143\n")
    (folder / "r-1.2.1.failed").write_text("9\n")
    (folder / "r-1.0.end").write_text("200\n")
    (run_dir.parent / "r-1.2").mkdir()
    ended = {
        "t_ns": 1,
        "event": "run_finished",
        "status": "Stopped",
        "secondary_status": "MaxRuntimeExceeded",
        "exit_code": 204,
    }
    (run_dir.parent / "r-1.2" / "events.jsonl").write_text(json.dumps(ended) + "\n")
    found = read_facts(run_dir, "r-1.2", "", 137, 1)
    assert found == an_end(srun_code=137, first_code=143, failed_code=9, ran_out_of_time=True)
    (folder / "cancelled").touch()
    (folder / "r-1.2.0.end").write_text("")
    found = read_facts(run_dir, "r-1.2", "time limit", 1, 0)
    assert (found.first_code, found.is_cancelled, found.left, found.asked) == (None, True, 0, "time limit")


def test_the_jobs_script_reads_a_code_and_a_word(run_dir):
    (run_dir / "slurm" / "r-1.0.end").write_text("200\n")
    program = [sys.executable, "-P", "-m", "paceline.parts.engines.slurm.attempt_end"]
    done = subprocess.run([*program, str(run_dir), "r-1", "", "1", "2"], capture_output=True, text=True, check=True)
    assert done.stdout == "200 requeue\n"
