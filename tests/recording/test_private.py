"""What a run leaves is its user's alone, whatever the umask, and nobody else can change what will be executed."""

import os
import stat
from contextlib import contextmanager

import pytest
from submissions import a_submission, changed

from paceline.cli.values import directory_mode
from paceline.contract.tree import Tree, lay_directories, write_config
from paceline.errors import UsageError
from paceline.facts import Run
from paceline.job_file import job_document
from paceline.launch.agent.output import _recording
from paceline.parts.engines import jobs
from paceline.parts.engines.cli.submission import submission_of
from paceline.parts.engines.cli.submit import parse
from paceline.parts.engines.fake.engine import engine as fake_engine
from paceline.parts.engines.package import package
from paceline.parts.engines.slurm import engine as slurm
from paceline.parts.engines.slurm.engine import _lay
from paceline.parts.engines.submission import host_file
from paceline.parts.resume.state_store import state_store
from paceline.probes.environment import without_secrets
from paceline.recording.plain_files import make_folder, write_plain
from paceline.recording.runs import create_run, make_next_try, register, write_run
from paceline.recording.writer import JsonLines, append_whole_records, write_json

JOB = a_submission()


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_a_run_directory_is_its_users_alone(tmp_path, mask):
    with umask(mask):
        created = create_run(tmp_path / ".paceline" / "runs", "r-000001").path
    assert mode(created) == 0o700


def test_where_others_may_add_runs_they_cannot_rename_ours(tmp_path):
    with umask(0o002):
        create_run(tmp_path / ".paceline" / "runs", "r-000001")
    for shared in (tmp_path / ".paceline", tmp_path / ".paceline" / "runs"):
        assert mode(shared) == 0o1775


@pytest.mark.parametrize("mask", [0o002, 0o077])
def test_a_mode_that_was_asked_for_is_that_of_further_tries_too(tmp_path, mask):
    with umask(mask):
        created = create_run(tmp_path, "r-000001", 0o750).path
        make_next_try(tmp_path / "r-000001.2", created)
    assert mode(created) == mode(tmp_path / "r-000001.2") == 0o750


def test_a_directory_that_is_there_stays_as_it_is(tmp_path):
    first = create_run(tmp_path, "r-000001", 0o750)
    assert mode(create_run(tmp_path, "r-000001").path) == mode(first.path) == 0o750


@pytest.mark.parametrize("text", ["0770", "0757", "0777", "4755", "0400", "rwx", "99", ""])
def test_a_mode_that_lets_others_write_is_refused(text):
    with pytest.raises(UsageError, match="--set run_dir_mode"):
        directory_mode(text)


def test_a_mode_that_the_umask_takes_back_is_refused():
    with umask(0o077), pytest.raises(UsageError, match="the umask keeps them") as refused:
        directory_mode("0750")
    assert refused.value.next.startswith("umask 0027;")
    with umask(0o077):
        assert directory_mode("0700") == 0o700


def test_every_agent_of_a_submitted_job_is_told_the_mode():
    words = ["--engine", "fake", "--set", "run_dir_mode=0750", __file__]
    job, _, _ = submission_of(parse(words), "r-000001", {}, {})
    assert job_document(host_file(job))["run_dir_mode"] == 0o750


def test_what_slurm_will_start_is_nobody_elses_to_change(tmp_path):
    code = tmp_path / "mine"
    code.mkdir()
    (code / "train.py").write_text("print(1)")
    with umask(0o000):
        run_dir = jobs.make_run_dir(tmp_path / "runs", "r-000001", 0o755)
        packed = package(code, run_dir / jobs.CODE_FILE)
        planned = slurm.SlurmEngine({}, {}).plan(JOB)
        job = changed(JOB, package=packed)
        _lay(type(planned)(engine="slurm", job=job, document=planned.document, files=planned.files), run_dir)
    assert mode(run_dir / "slurm") == mode(run_dir / "code") == 0o700
    assert {mode(path) for path in (run_dir / "slurm").iterdir()} == {0o700, 0o600}
    assert mode(run_dir / jobs.CODE_FILE) == 0o600


def test_where_a_job_went_is_nobody_elses_to_read(tmp_path):
    with umask(0o000):
        run_dir = jobs.make_run_dir(tmp_path, "r-000001", 0o755)
        jobs.submit_job(JOB, fake_engine({}, {}), run_dir)
    assert mode(run_dir / "submission.json") == 0o600


def test_the_contracts_configuration_is_nobody_elses_to_read(tmp_path):
    tree = Tree(tmp_path)
    with umask(0o000):
        lay_directories(tree)
        write_config(tree, wire={"api_key": '"1a2b"'}, channels={}, resources={}, job_name="digits")
    assert {mode(path) for path in tree.config_files} == {0o600}


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("--hp api_key=1a2b train.py", "--hp api_key=*** train.py"),
        ("--hp=api_key=1a2b train.py", "--hp=api_key=*** train.py"),
        ("train.py --auth-token 1a2b --lr 0.1", "train.py --auth-token *** --lr 0.1"),
        ("train.py --wandb-api-key=1a2b", "train.py --wandb-api-key=***"),
        ("train.py api_key 1a2b", "train.py api_key ***"),
        ("--set token_file=/run/token --set no_token=true train.py", "--set token_file=/run/token --set no_token=true train.py"),
        ("train.py --max-tokens 2048 --tokenizer gpt2 --use-auth --lr 1", "train.py --max-tokens 2048 --tokenizer gpt2 --use-auth --lr 1"),
        ("--hp lr=0.1 auth_train.py 3", "--hp lr=0.1 auth_train.py 3"),
    ],
)  # fmt: skip
def test_the_command_is_kept_without_its_secrets(typed, kept):
    assert " ".join(without_secrets(typed.split())) == kept


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_what_is_read_back_is_its_users_alone_to_change(tmp_path, mask):
    """Also where its user opens the directory later: folders too, in which a file can be replaced."""
    with umask(mask):
        directory = create_run(tmp_path / "runs", "r-000001", 0o755 & ~mask)
        run = Run(id="r-1", name="n", directory=str(directory.path), command=(), started_ns=1, first_host="a")
        write_run(run)
        assert register("r-000001", directory.path, tmp_path / "index/deep") is None
        write_json(directory.host_file("a"), {})
        JsonLines(directory.events_file).append({})
        JsonLines(directory.telemetry_file("a")).append({})
        append_whole_records(directory.path / "hosts/b/attempt_0/steps_10s.roll", b"12", 2)
        state_store(str(directory.path / "state")).write("0/piece", [b"1"])
        _recording(directory.path / "hosts/c/attempt_0/rank_0.out").close()
    below = [path for top in (directory.path, tmp_path / "index") for path in (top, *top.rglob("*"))]
    assert len(below) > 18 and not [path for path in below if mode(path) & 0o022]


@pytest.mark.parametrize("what", ["a link", "a link to nothing", "a pipe", "a directory"])
def test_nothing_is_written_where_a_link_or_a_pipe_has_the_name(tmp_path, what):
    log, mine = tmp_path / "rank_0.out", tmp_path / "mine"
    if what == "a link":
        mine.write_text("kept")
    if what.startswith("a link"):
        log.symlink_to(mine)
    elif what == "a pipe":
        os.mkfifo(log)
    else:
        log.mkdir()
    for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_TRUNC):
        with pytest.raises(OSError):
            write_plain(log, flags)
    with _recording(log) as lost, pytest.raises(OSError, match="No space left"):
        lost.write(b"what a rank printed")
    assert (mine.read_text() if mine.exists() else None) == ("kept" if what == "a link" else None)


def test_a_folder_that_is_there_stays_as_it_is(tmp_path):
    tmp_path.chmod(0o770)
    make_folder(tmp_path)
    make_folder(tmp_path / "a/b")
    assert mode(tmp_path) == 0o770
