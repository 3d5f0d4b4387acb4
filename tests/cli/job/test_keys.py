"""`paceline run --set KEY=VALUE`: every key, what it means as the same field of a job file, and the options that the keys were."""

import json
import shlex
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cli.check.verb import parse as parse_check
from paceline.cli.corrected_command import corrected
from paceline.cli.job.job import job_file_of
from paceline.cli.job.options import KEYS, VERB, parse_run
from paceline.errors import UsageError
from paceline.job_file import job_document
from paceline.job_file import job_file_of as read
from paceline.parts.engines.cli.submit import parse as parse_submit
from paceline.parts.lab.cli.bench.options import parse_argv as parse_bench

# Each key has an effect, or is allowed, beside these.
BESIDE = "--nnodes 2 --max-restarts 1 --gradients auto --resume r-0 --checkpoints file:///c --hp lr=0.1"
PLAN = {"schema": "paceline.plan/2", "rows": []}
# Key -> the value as it is typed, the former option, the argument that it gives, and the field of a job file with its value.
TABLE = {
    "run_id": ("r-2", "--run-id r-2", "r-2", {"run_id": "r-2"}),
    "run_dir_mode": ("0700", "--run-dir-mode 0700", "0700", {"run_dir_mode": 0o700}),
    "plan": ("plan.json", "--plan plan.json", "plan.json", {"plan": PLAN}),
    "total_steps": ("9000", "--total-steps 9000", 9000, {"job": {"total_steps": 9000}}),
    "fork_server": ("off", "--fork-server off", "off", {"job": {"fork_server": False}}),
    "store_port": ("4001", "--store-port 4001", 4001, {"job": {"store_port": 4001}}),
    "token_file": ("secret", "--token-file secret", "secret", {"token_file": "secret"}),
    "no_token": ("true", "--no-token", True, {"no_token": True}),
    "hyperparameters": (
        "hp.json",
        "--hyperparameters hp.json",
        "hp.json",
        {"job": {"contract": {"hyperparameters": {"lr": 0.1, "batch": 32}}}},
    ),
    "profile": ("v3", "--hp-profile v3", "v3", {"job": {"contract": {"profile": "v3"}}}),
    "checkpoints_delete": ("true", "--checkpoints-delete", True, {"job": {"checkpoints_delete": True}}),
    "base_dir": ("tree", "--base-dir tree", "tree", {"job": {"contract": {"base_dir": "tree"}}}),
    "opt_ml": ("true", "--opt-ml", True, {"job": {"contract": {"opt_ml": True}}}),
    "install_requirements": (
        "true",
        "--install-requirements",
        True,
        {"job": {"contract": {"install_requirements": True}}},
    ),
    # A job file is not looked at.
    "no_check": ("true", "--no-check", True, {}),
    "progress": ("plain", "--progress plain", "plain", {"progress": "plain"}),
    "json_file": ("/answer.json", "--json-file /answer.json", "/answer.json", {"json_file": "/answer.json"}),
    "allow_lossy": ("true", "--allow-lossy", True, {"job": {"allow_lossy": True}}),
    "resume_anyway": ("true", "--resume-anyway", True, {"job": {"resume_anyway": True}}),
}
SWITCHES = [row.name for row in KEYS if row.choices == ("true", "false")]


@pytest.fixture(autouse=True, scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text("print('hi')\n")
    (folder / "hp.json").write_text('{"lr": 0.3, "batch": 32}')
    (folder / "plan.json").write_text(json.dumps(PLAN))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        yield folder


def parsed(line):
    return parse_run(shlex.split(line), {})


def file_of(line):
    return job_file_of(parsed(line), is_local=lambda name: True)


def refusal(line, parse=lambda words: job_file_of(parse_run(words, {}), is_local=lambda name: True)):
    with pytest.raises(UsageError) as refused:
        parse(shlex.split(line))
    error = refused.value
    assert all((error.code, error.what, error.next, error.more)), vars(error)
    return error


def advised(line):
    """The command that the refusal of this one ends with, as `paceline run` prints it."""
    return corrected(refusal(line).next, shlex.split(line), VERB)


def with_fields(document, fields):
    """The document of a job file with these fields, in which a field that is an object keeps its others."""
    found = deepcopy(document)
    for name, value in fields.items():
        is_inner = name in ("job", "contract")
        found[name] = with_fields(found.get(name, {}), value) if is_inner else value
    return found


def last_name(fields):
    (name,) = fields
    return last_name(fields[name]) if name in ("job", "contract") else name


def test_the_table_has_every_key_and_every_former_option():
    assert list(TABLE) == [row.name for row in KEYS]
    renamed = {"profile": "hp-profile"}
    former = [f"--{renamed.get(name, name).replace('_', '-')}" for name in TABLE]
    assert [option.split()[0] for _, option, _, _ in TABLE.values()] == former


@pytest.mark.parametrize("key", TABLE)
def test_a_key_gives_the_argument_that_its_option_gave(key):
    text, _, value, _ = TABLE[key]
    given, plain = vars(parsed(f"--set {key}={text} train.py")), vars(parsed("train.py"))
    assert given.pop(key) == value != plain.pop(key)
    assert given.pop("set") == [f"{key}={text}"] and plain.pop("set") is None
    assert given == plain


@pytest.mark.parametrize("key", TABLE)
def test_a_key_has_the_name_of_its_field_in_a_job_file(key):
    fields = TABLE[key][3]
    assert fields == {} or last_name(fields) == key


@given(
    keys=st.permutations([*TABLE]).flatmap(lambda keys: st.integers(0, len(keys)).map(lambda count: keys[:count])),
    joined=st.booleans(),
)
def test_keys_say_what_the_same_fields_of_a_job_file_say(keys, joined):
    # Two places for one tree are refused.
    keys = [key for key in keys if key != "opt_ml" or "base_dir" not in keys]
    expected = job_document(file_of(f"{BESIDE} train.py"))
    for key in keys:
        expected = with_fields(expected, TABLE[key][3])
    said = " ".join(f"--set{'=' if joined else ' '}{key}={TABLE[key][0]}" for key in keys)
    assert file_of(f"{BESIDE} {said} train.py") == read(expected, "")
    assert file_of(f"{said} {BESIDE} train.py") == read(expected, "")


@pytest.mark.parametrize("key", SWITCHES)
def test_false_and_the_last_of_several_count(key):
    assert parsed(f"--set {key}=false train.py").__dict__[key] is False
    assert parsed(f"--set {key}=true --set {key}=false train.py").__dict__[key] is False
    assert parsed(f"--set {key}=false --set {key}=true train.py").__dict__[key] is True


def test_a_file_in_the_home_directory_is_found_behind_the_key(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert parsed("--set token_file=~/secret train.py").token_file == "/home/me/secret"
    assert parsed("--set base_dir=~/tree train.py").base_dir == "/home/me/tree"
    assert parsed("--set run_id=~r train.py").run_id == "~r"


def test_what_follows_the_script_is_the_scripts_own():
    for line in ("train.py --set run_id=r-2 --run-id r-3", "-- train.py --run-id r-3", "-m train --opt-ml"):
        args = parsed(line)
        assert (args.set, args.run_id, args.opt_ml) == (None, None, False)
        assert args.training_script_args == shlex.split(line.partition("train")[2].removeprefix(".py"))


@pytest.mark.parametrize(
    ("line", "code", "what", "command"),
    [
        # no such key
        ("--set stor_port=1 t.py", "U01", "has no key stor_port", "run --set store_port=1 t.py"),
        ("--set run-id=a t.py", "U01", "has no key run-id", "run --set run_id=a t.py"),
        ("--set=hyperparameter=hp.json t.py", "U01", "has no key hyperparameter", "run --set hyperparameters=hp.json t.py"),
        ("--set plam='a b' t.py", "U01", "has no key plam", "run --set 'plan=a b' t.py"),
        ("--set progres t.py", "U01", "has no key progres", "run --set progress=auto t.py"),
        ("--set nonsense=3 t.py", "U01", "has no key nonsense", "help keys"),
        ("--set name=x t.py", "U01", "has no key name", "run --name x t.py"),
        ("--set max_run=2h --name x t.py", "U01", "has no key max_run", "run --max-run 2h --name x t.py"),
        ("--set nproc-per-node t.py", "U01", "has no key nproc-per-node", "run --nproc-per-node 1 t.py"),
        ("--set standalone=true t.py", "U01", "has no key standalone", "run --standalone t.py"),
        # no key, or no value
        ("--set =3 t.py", "U03", "is not KEY=VALUE", "help keys"),
        ("--set '' t.py", "U03", "is not KEY=VALUE", "help keys"),
        ("--set store_port t.py", "U03", "is not KEY=VALUE", "run --set store_port=1 t.py"),
        ("--set opt_ml t.py", "U03", "is not KEY=VALUE", "run --set opt_ml=true t.py"),
        ("--set run_id= t.py", "U03", "has an empty value", "run --set run_id=ID t.py"),
        # a value that the key does not take
        ("--set store_port=a t.py", "U03", "--set store_port: 'a' is not a number", "run --set store_port=1 t.py"),
        ("--set profile=v1 t.py", "U03", "--set profile: 'v1' is none of 'v2', 'v3'", "run --set profile=v3 t.py"),
        ("--set progress=plan t.py", "U03", "is none of 'auto', 'plain', 'off'", "run --set progress=plain t.py"),
        ("--set no_token=false --set no_token=on t.py", "U03", "'on' is none of", "run --set no_token=false --set no_token=true t.py"),
        # a value that it takes, and no job can have
        ("--set store_port=70000 t.py", "U03", "--set store_port=70000 is not", "run --set store_port=29500 t.py"),
        ("--set total_steps=0 t.py", "U03", "--set total_steps=0 is not", "run --set total_steps=10000 t.py"),
        ("--set 'run_id=r 1' t.py", "U03", "--set run_id=r 1 is not", "run --set run_id=r-7f3a91 t.py"),
        ("--set run_dir_mode=777 t.py", "U03", "--set run_dir_mode=777 is not", "run --set run_dir_mode=0750 t.py"),
        ("--set json_file=/no/x t.py", "U22", "--set json_file=/no/x cannot be written", "ls -ld /no"),
        ("--set plan=none.json t.py", "U03", "--set plan=none.json is no plan", "plan --json train.py > none.json"),
        # keys that do not fit together, or not beside others
        ("--set base_dir=x --set opt_ml=true t.py", "U03", "two places for one tree", "run --set base_dir=x t.py"),
        (
            "--set checkpoints_delete=true t.py",
            "U03",
            "there is none",
            "run --set checkpoints_delete=true --checkpoints URL t.py",
        ),
        (
            "--set resume_anyway=true t.py",
            "U03",
            "--resume names none",
            "run --set resume_anyway=true --resume RUN t.py",
        ),
        ("--job job.json --set total_steps=3", "U27", "job.json", "ls -l job.json"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_command_to_type(line, code, what, command):
    error = refusal(line)
    assert error.code == code and what in error.what
    assert advised(line) in (f"paceline {command}", command)


@pytest.mark.parametrize("key", SWITCHES)
@pytest.mark.parametrize("value", ["True", "TRUE", "yes", "1", "on", "t"])
def test_a_switch_is_true_or_false_and_nothing_else(key, value):
    error = refusal(f"--set {key}={value} train.py")
    assert (error.code, error.what) == ("U03", f"--set {key}: {value!r} is none of 'true', 'false'")
    assert error.saw == f"--set {key}={value}"
    assert advised(f"--set {key}={value} train.py") == f"paceline run --set {key}=true train.py"


@pytest.mark.parametrize("key", [key for key in TABLE if key != "no_check"])
def test_beside_a_job_file_a_key_of_the_job_itself_is_refused(key, project):
    text, _, _, fields = TABLE[key]
    document = job_document(file_of("--nnodes 2 train.py"))
    (project / "job.json").write_text(json.dumps(document))
    line = f"--job job.json --set {key}={text}"
    if key in ("base_dir", "opt_ml", "store_port") or "job" not in fields:
        assert file_of(line) == read(with_fields(document, fields), "")
    else:
        error = refusal(line)
        assert error.code == "U05" and error.next == f"leave --set {key} out, or change it in job.json"


@pytest.mark.parametrize("key", TABLE)
@pytest.mark.parametrize("spelling", ["{}", "{}=", "underscores", "twice"])
def test_a_former_option_is_answered_with_the_command_that_does_the_same(key, spelling):
    text, option, _, _ = TABLE[key]
    if spelling == "underscores":
        option = option[:2] + option[2:].replace("-", "_", option.split()[0].count("-") - 2)
    elif spelling == "{}=":
        option = option.replace(" ", "=")
    elif spelling == "twice":
        option = f"{option} --name x {option}"
    line = f"--nnodes 2 {option} --nproc-per-node=2 train.py {option} '\"a b\"'"
    error = refusal(line)
    assert (error.code, error.what) == ("U01", f"unknown option {option.split()[0].partition('=')[0]}")
    program, verb, *words = shlex.split(error.next)
    assert (program, verb) == ("paceline", "run")
    now = f"--set {key}={text}"
    now = f"{now} --name x {now}" if spelling == "twice" else now
    expected = f"--nnodes 2 {now} --nproc-per-node=2 train.py {option} '\"a b\"'"
    assert vars(parse_run(words, {})) == vars(parsed(expected))
    # What the user reads is the whole command: nothing is put into it or taken out of it.
    assert corrected(error.next, shlex.split(line), VERB) == error.next


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("--opt-ml=x train.py", "run --set opt_ml=true train.py"),
        ("--hp-file hp.json train.py", "run --set hyperparameters=hp.json train.py"),
        ("--profile v3 train.py", "run --set profile=v3 train.py"),
        ("--run-id 'r 1' --opt-ml -m train", "run --set 'run_id=r 1' --set opt_ml=true -m train"),
        ("--name --opt-ml train.py", "run --name --opt-ml train.py"),
        ("--job j.json --run-id r-2", "run --job j.json --set run_id=r-2"),
        ("--run-id", "run --set run_id="),
    ],
)
def test_all_other_words_stay_as_they_are(line, command):
    if "--set" in command:
        assert refusal(line).next == f"paceline {command}"
    else:
        # It is the value of another option.
        assert "--set" not in refusal(line).next


@pytest.mark.parametrize(
    ("verb", "parse", "line", "words"),
    [
        ("check", parse_check, "--opt-ml --fail-on never train.py", "--set opt_ml=true --fail-on never train.py"),
        ("submit", parse_submit, "--engine slurm --total-steps 9 t.py", "--engine slurm --set total_steps=9 t.py"),
        ("bench", parse_bench, "step --base-dir b t.py --run-id 1", "step --set base_dir=b t.py --run-id 1"),
    ],
)
def test_the_verbs_that_take_options_of_run_say_it_too(verb, parse, line, words):
    error = refusal(line, parse)
    assert (error.code, error.next) == ("U01", f"paceline {verb} {words}")
    assert "--set" in parse(shlex.split(words)).run_argv


def test_options_of_these_verbs_that_have_such_a_name_are_theirs():
    assert parse_check(["--plan", "--steps 9", "train.py"]).plan == "--steps 9"
    assert parse_submit(["--engine", "local", "--plan", "--steps 9", "train.py"]).plan == "--steps 9"
    assert parse_bench(["step", "--gradients", "auto", "--allow-lossy", "train.py"]).allow_lossy is True
