"""The Slurm engine without a Slurm: what is asked, what its answers mean, what it refuses. Answers are those of a real cluster."""

import subprocess
from pathlib import Path

import pytest
from submissions import a_submission, changed

from paceline.errors import PacelineError, UsageError
from paceline.facts import Program, ProgramKind, SecondaryStatus, Status
from paceline.parts.engines.conformance import check_plan
from paceline.parts.engines.slurm import engine as slurm
from paceline.parts.engines.slurm.errors import refused
from paceline.parts.engines.slurm.hosts import salloc_argv
from paceline.parts.engines.slurm.script import checked_options, environment_text, filled, time_minutes, warning_seconds
from paceline.parts.engines.slurm.states import (
    STATES,
    AttemptEnd,
    AttemptFiles,
    SlurmJob,
    expand,
    observed,
    of_array,
    parse_end,
    parse_sacct,
    parse_scontrol,
)
from paceline.rules import pages

DATA = Path(__file__).parents[1] / "places" / "data"
JOB = a_submission(
    run_id="r-7f3a91",
    program=Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=("--note", "it's")),
    hosts=2,
    ranks_per_host="4",
    environment={"API_KEY": "a-very-secret-value"},
)


def planned(job=JOB, **options):
    engine = slurm.SlurmEngine({}, {}, python="/opt/python")
    return engine.plan(changed(job, engine_options={**job.engine_options, **options}))


def words_of(job=JOB, **options):
    return planned(job, **options).document["argv"]


def end(**fields):
    return AttemptEnd(**{"number": 1, "code": 204, "asked": "", "next": "end", **fields})


# --------------------------------------------------------------------------------------------------------------- the plan


def test_the_plan_is_the_command_that_a_person_would_type():
    assert words_of() == [
        "sbatch",
        "--parsable",
        "--job-name=train",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--no-requeue",
        "--open-mode=append",
        "--output={place}/slurm/job.out",
        "--signal=B:USR2@150",
        "--cpus-per-task=4",
        "{place}/slurm/job.sbatch",
        "{place}",
    ]


def test_every_node_starts_the_same_agent_with_its_own_rank():
    (line,) = [line.strip() for line in planned().files["agent.sh"].splitlines() if "-m paceline" in line]
    assert line == (
        'exec /opt/python -P -m paceline run --job "$place/slurm/job.json" --set run_id="$run" --run-dir "${place%/*}" '
        '--set token_file="$place/slurm/token" --node-rank "$SLURM_NODEID" --master-addr "$first" --master-port "$port"'
    )


def test_one_host_meets_nobody():
    line = planned(changed(JOB, hosts=1)).files["agent.sh"]
    assert "--master-addr" not in line and '--set run_id="$run"' in line


def test_the_scripts_are_such_as_bash_takes():
    for name, text in planned(changed(JOB, retries=3), array="0-3", setup="module load cuda").files.items():
        assert (
            name == "job.json"
            or subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).stderr == ""
        )


def test_the_plan_keeps_the_contract():
    check_plan(slurm.SlurmEngine({}, {}), JOB)


def test_options_of_the_job_are_sbatchs():
    argv = words_of(
        changed(JOB, retries=2, stop_grace_seconds=300.0, max_run_seconds=3600.0),
        account="physics",
        array="0-3%2",
        partition="gpu",
        exclusive="",
        **{"sbatch.nice": "100", "sbatch.hold": ""},
    )
    for word in (
        "--requeue", "--account=physics", "--array=0-3%2", "--partition=gpu", "--exclusive", "--nice=100", "--hold", "--signal=B:USR2@330",
        "--time=69", "--output={place}/slurm/job-%a.out",
    ):  # fmt: skip
        assert word in argv
    assert "--no-requeue" not in argv and not [word for word in argv if word.startswith("--cpus-per-task")]


def test_nodes_for_a_check_are_those_of_the_job_for_minutes():
    options = {
        "partition": "gpu",
        "time": "500",
        "array": "0-3",
        "sbatch.gpus": "8",
        "sbatch.comment": "x",
        "exclusive": "",
    }
    argv = salloc_argv(changed(JOB, hosts=3), options, 12.4)
    assert argv[:6] == (
        *("salloc", "--job-name=paceline-check", "--nodes=3", "--ntasks-per-node=1", "--immediate=12", "--time=5"),
    )
    assert argv[6:-3] == ("--exclusive", "--gpus=8", "--partition=gpu")


def test_slurms_limit_leaves_room_for_our_own_and_for_the_warning():
    job = changed(JOB, max_run_seconds=3600.0)
    assert time_minutes(job) * 60 - warning_seconds(job) - 60 >= 3600 + 120
    assert "--time=10" in words_of(job, time="10") and "--time=66" not in words_of(job, time="10")


@pytest.mark.parametrize(("said", "seconds"), [({}, 150), ({"stop_grace_seconds": 60.0}, 90)])
def test_the_checkpoint_window_is_the_stop_grace(said, seconds):
    assert warning_seconds(changed(JOB, **said)) == seconds


def test_the_place_is_filled_in_and_a_percent_sign_in_it_is_no_field():
    argv = filled(tuple(words_of(changed(JOB, name="{place}"))), "/data/50%/r-1")
    assert argv[-2:] == ("/data/50%/r-1/slurm/job.sbatch", "/data/50%/r-1")
    assert "--output=/data/50%%/r-1/slurm/job.out" in argv and "--job-name={place}" in argv


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("partion", "U03", "partition"),
        ("sbatch.output", "E34", "paceline logs"),
        ("sbatch.signal", "E34", "--stop-grace"),
        ("sbatch.requeue", "E34", "--retries"),
        ("sbatch.array", "E34", "--option array="),
        ("sbatch.--hold", "E34", "--option sbatch."),
        ("sbatch.p", "E34", "--option sbatch."),
    ],
)
def test_an_option_that_is_not_to_be_given_is_refused_with_the_one_that_is(name, code, says):
    with pytest.raises(UsageError) as refusal:
        checked_options({name: "x"})
    assert refusal.value.code == code and says in refusal.value.saw + refusal.value.next


def test_variables_go_through_a_file_and_never_through_the_request():
    assert environment_text({"B": "it's", "A": "1\n2"}) == "export A='1\n2'\nexport B='it'\"'\"'s'\n"
    with pytest.raises(UsageError, match="A-B"):
        environment_text({"A-B": "1"})


# ---------------------------------------------------------------------------------------------------------------- answers


def test_jobs_that_last_are_read_from_a_real_scontrol():
    jobs = parse_scontrol((DATA / "slurm_scontrol_lasting.txt").read_text())
    assert [(job.id, job.task, job.state, job.reason, job.restarts, job.nodes) for job in jobs] == [
        ("5", None, "RUNNING", "", 0, ("algo-2", "algo-3")),
        ("13", "2", "RUNNING", "", 0, ("algo-2",)),
        ("10", None, "PENDING", "Resources", 0, ()),
        ("11", "1-3", "PENDING", "JobHeldUser", 0, ()),
        ("12", None, "PENDING", "Priority", 0, ()),
        ("7", "3", "RUNNING", "", 0, ("algo-2",)),
        ("12", None, "PENDING", "BeginTime", 1, ()),
    ]


def test_ends_are_read_from_a_real_scontrol_whatever_a_job_is_called():
    jobs = {
        job.id: observed(job, AttemptFiles()) for job in parse_scontrol((DATA / "slurm_scontrol_ended.txt").read_text())
    }
    assert {number: (str(seen.status), seen.exit_code, seen.own_word) for number, seen in jobs.items()} == {
        "1": ("Completed", 0, "COMPLETED"),
        "2": ("Failed", 7, "FAILED"),
        "3": ("Failed", 139, "FAILED"),
        "4": ("Stopped", 143, "CANCELLED"),
        "5": ("Stopped", 204, "TIMEOUT"),
        "6": ("Failed", 1, "FAILED"),
        "8": ("Completed", 0, "COMPLETED"),
        "9": ("Completed", 0, "COMPLETED"),
        "13": ("Completed", 0, "COMPLETED"),
        "10": ("Stopped", 143, "CANCELLED"),
        "11": ("Stopped", 143, "CANCELLED"),
        "7": ("Completed", 0, "COMPLETED"),
        "14": ("Failed", 200, "NODE_FAIL"),
        "15": ("Completed", 0, "COMPLETED"),
    }
    assert "every node sees" in jobs["6"].reason
    assert jobs["14"].reason == "Slurm lost a node of the job (algo-3)"


def test_accounting_gives_a_line_per_try_and_the_last_one_counts():
    jobs = {(job.id, job.task): job for job in parse_sacct((DATA / "slurm_sacct.txt").read_text())}
    assert jobs["2", None].exit_code == 7 and jobs["4", None].state == "CANCELLED" and jobs["3", None].signal == 11
    assert (jobs["12", None].state, jobs["12", None].restarts) == ("NODE_FAIL", 1)
    assert jobs["10", None].nodes == () and jobs["7", "2"].nodes == ("algo-2",)


@pytest.mark.parametrize("parse", [parse_scontrol, parse_sacct, parse_end])
def test_an_answer_in_another_form_is_an_error_that_shows_it(parse):
    with pytest.raises(PacelineError) as unknown:
        parse("JobId=1 JobState=RUNNING")
    assert unknown.value.code == "U19" and "JobId=1" in unknown.value.saw


@pytest.mark.parametrize(
    ("short", "names"),
    [
        ("", ()),
        ("algo-2", ("algo-2",)),
        ("gpu[08-10],login", ("gpu08", "gpu09", "gpu10", "login")),
        ("r[1-2]n[1,4]", ("r1n1", "r1n4", "r2n1", "r2n4")),
        ("a[1,3-4]-ib,b7", ("a1-ib", "a3-ib", "a4-ib", "b7")),
    ],
)
def test_a_node_list_is_expanded_as_scontrol_does(short, names):
    assert expand(short) == names


# ---------------------------------------------------------------------------------------------------------- what it means


def test_every_state_has_a_meaning_and_ends_have_codes():
    for state, meaning in STATES.items():
        seen = observed(SlurmJob(id="1", state=state, exit_code=3), AttemptFiles())
        assert seen.own_word == state and seen.status is meaning.status
        assert seen.ended == (seen.exit_code is not None)


def test_an_unknown_state_is_an_error_that_names_it():
    with pytest.raises(PacelineError, match="ON_FIRE") as unknown:
        observed(SlurmJob(id="1", state="ON_FIRE"), AttemptFiles())
    assert unknown.value.code == "U19"


@pytest.mark.parametrize(
    ("state", "note", "status", "secondary", "code"),
    [
        ("COMPLETING", end(code=0), "Completed", "Completed", 0),
        ("COMPLETING", end(code=200), "Failed", "Failed", 200),
        ("RUNNING", end(next="requeue"), "InProgress", "Restarting", None),
        ("FAILED", end(code=7), "Failed", "Failed", 7),
        ("FAILED", end(asked="time limit"), "Stopped", "MaxRuntimeExceeded", 204),
        ("FAILED", end(), "Stopped", "Interrupted", 204),
        ("CANCELLED", end(asked="cancelled"), "Stopped", "Stopped", 204),
        # What a preemption looks like to the script; Slurm knows better, and may start the job again.
        ("PREEMPTED", end(asked="cancelled"), "Stopped", "Interrupted", 204),
        ("COMPLETING", end(asked="cancelled"), "InProgress", "Stopping", None),
        ("NODE_FAIL", end(code=1), "Failed", "Failed", 200),
        ("TIMEOUT", end(asked="time limit", next="requeue"), "Stopped", "MaxRuntimeExceeded", 204),
    ],
)
def test_what_the_script_noted_and_what_slurm_says_make_one_answer(state, note, status, secondary, code):
    seen = observed(SlurmJob(id="1", state=state, exit_code=1), AttemptFiles(ends=(note,)))
    assert (seen.status, seen.secondary_status, seen.exit_code) == (status, secondary, code)


def test_a_note_of_an_earlier_try_says_nothing_of_this_one():
    seen = observed(SlurmJob(id="1", state="PENDING", reason="BeginTime", restarts=1), AttemptFiles(ends=(end(),)))
    assert (seen.secondary_status, seen.tries, seen.exit_code) == (SecondaryStatus.RESTARTING, 2, None)
    assert "cred_expire" in seen.reason


def test_an_array_lasts_as_long_as_a_task_and_fails_with_the_first_that_failed():
    done = observed(SlurmJob(id="1", state="COMPLETED", exit_code=0, nodes=("a",)), AttemptFiles())
    bad = observed(SlurmJob(id="2", state="FAILED", exit_code=7, nodes=("b",)), AttemptFiles())
    lasts = observed(SlurmJob(id="3", state="RUNNING", nodes=("c",)), AttemptFiles())
    assert of_array([("0", done), ("1", bad), ("2", lasts)]).status is Status.IN_PROGRESS
    ended = of_array([("0", done), ("1", bad)])
    assert (ended.exit_code, ended.reason, dict(ended.nodes)) == (7, "task 1: ended with 7", {"a": "a", "b": "b"})


def test_a_name_that_its_node_is_still_writing_is_passed_over(tmp_path):
    notes = tmp_path / "r-1" / "slurm"
    notes.mkdir(parents=True)
    (notes / "r-1.0.node").write_text("ip-10-0-0-1 node0\n")
    (notes / "r-1.1.node").write_text("")
    files = slurm.SlurmEngine({}, {})._left(tmp_path / "r-1", None, 1)
    assert files.nodes == {"ip-10-0-0-1": "node0"}


# --------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", "E10"),
        ("sbatch: fatal: Unable to process configuration file", "E10"),
        (
            "sbatch: error: invalid partition specified: nope\nsbatch: error: Invalid partition name specified",
            "E34",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            "E34",
        ),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "E34"),
        ("sbatch: error: Batch job submission failed: Requested reservation is invalid", "E34"),
        ("sbatch: error: Batch job submission failed: Node count specification invalid", "E33"),
        (
            "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
            "E33",
        ),
        ("sbatch: error: Invalid --time specification", "E33"),
        ("sbatch: error: Memory specification can not be satisfied", "E33"),
        ("sbatch: error: Batch job submission failed: More processors requested than permitted", "E33"),
        ("sbatch: error: Invalid generic resource (gres) specification", "E33"),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", "E33"),
        ("sbatch: error: Batch job submission failed: Invalid node name specified", "E33"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "E33"),
        ("sbatch: error: Batch job submission failed: Invalid license specification", "E33"),
        ("sbatch: error: Batch job submission failed: Invalid job array specification", "E34"),
        ("/usr/bin/sbatch: unrecognized option '--nosuch'", "E34"),
        ("sbatch: error: the site's plugin wants a project number", "E34"),
    ],
)
def test_slurms_own_words_are_translated_and_kept(said, code):
    error = refused("sbatch", said, 1)
    assert error.code == code and said.splitlines()[-1] in error.saw and error.next
    assert code in pages()


def test_a_command_that_fails_without_a_word_says_that():
    assert refused("sbatch", "", 3).saw == "sbatch ended with 3 and said nothing"


def test_a_job_needs_a_host():
    with pytest.raises(UsageError) as refusal:
        planned(changed(JOB, hosts=0))
    assert refusal.value.code == "U05"


# ---------------------------------------------------------------------------------------------- the engine's own processes


def a_command(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.process
def test_a_job_that_slurm_has_forgotten_is_known_from_what_its_script_left(tmp_path):
    a_command(tmp_path, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    a_command(tmp_path, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    engine = slurm.engine({"PATH": f"{tmp_path}:/usr/bin:/bin"}, {})
    run_dir = tmp_path / "r-1"
    (run_dir / "slurm").mkdir(parents=True)
    with pytest.raises(PacelineError) as forgotten:
        engine.observe({"job_id": "17"}, run_dir)
    assert forgotten.value.code == "U19"
    (run_dir / "slurm" / "r-1.ended").write_text('{"try": 1, "code": 204, "asked": "time limit", "next": "requeue"}\n')
    (run_dir / "slurm" / "r-1.2.ended").write_text('{"try": 2, "code": 9, "asked": "", "next": "end"}\n')
    (run_dir / "slurm" / "r-1-0.ended").write_text("of a task")
    seen = engine.observe({"job_id": "17"}, run_dir)
    assert (seen.exit_code, seen.tries, seen.own_word) == (9, 2, "forgotten")


@pytest.mark.process
def test_lines_of_the_output_come_once_and_whole(tmp_path):
    (tmp_path / "slurm").mkdir()
    out = tmp_path / "slurm" / "job.out"
    engine = slurm.engine({}, {})
    assert engine.logs({}, tmp_path, None)[0] == []
    out.write_text("one\ntw")
    lines, cursor = engine.logs({}, tmp_path, None)
    assert lines == ["one"]
    out.write_text("one\ntwo\n")
    assert engine.logs({}, tmp_path, cursor)[0] == ["two"]
