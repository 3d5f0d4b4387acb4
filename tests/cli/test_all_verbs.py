"""One word has one meaning over all verbs. Every row of every verb is held to the rules; an exception stands here with its reason."""

import json
import re
from collections import defaultdict

import pytest

from paceline import cli
from paceline.cli import main
from paceline.cli.parsing import VerbParser, called, spelled
from paceline.option import HELP
from paceline.parts.lab.cli.bench.options import _form

# What each verb refuses at once, whatever its options are; a script's name is the last word of those that take one.
REFUSED = {
    "run": ["missing.py"],
    "submit": ["--engine", "local", "missing.py"],
    "check": ["missing.py"],
    "resume": ["missing.py"],
    "plan": ["missing.py"],
    "bench": ["allreduce"],
    "ps": ["--status", "Broken"],
    "logs": ["r-zzzzzz"],
    "top": ["r-zzzzzz"],
    "why": ["r-zzzzzz"],
    "web": ["r-zzzzzz"],
    "report": ["r-zzzzzz"],
    "compare": ["r-zzzzzz"],
    "stack": ["r-zzzzzz"],
    "stop": ["r-zzzzzz"],
    "sagemaker-local": ["--port", "some"],
    "env": ["--python", "/nowhere/python"],
    "help": ["Z99"],
}
# What stands before and behind an option with a duration, so that only the duration is wrong.
AROUND = {
    "run": ([], ["train.py"]),
    "submit": (["--engine", "local", "--dry-run"], ["train.py"]),
    "check": ([], ["train.py"]),
    "plan": (["--measured-step-ms", "100", "--epochs", "1", "--samples", "9"], []),
    "bench": (["all_reduce"], []),
    "top": ([], []),
    "report": (["--format", "trace"], []),
    "ps": (["--prune"], []),
    "sagemaker-local": ([], []),
}
# An option that takes another kind of value on another verb, and why that is the same meaning or cannot be changed.
OTHER_VALUES = {
    "device": "plan names an accelerator, as catalogues do; bench names torch's kind of device, as torch does",
    "engine": "check takes the engine of any job, those of plug-ins too",
    "gradients": "run takes one name; bench compares several",
    "host": "logs: one host of the job; sagemaker-local: the address to listen on, as every server calls it",
    "hosts": "plan: the old spelling of --host-counts, hidden, with a notice",
    "instance": "check is about one job; plan compares several types",
}
# An option with the same kind of value whose sentence differs.
OTHER_SENTENCES = {
    "all": "what is all is the verb's own",
    "color": "run's stdout is the script's",
    "dir": "sagemaker-local: the old spelling of --jobs-dir, hidden, with a notice",
    "dry-run": "what is not done is the verb's own",
    "env": "run takes it for hosts over ssh only",
    "fail-on": "what can be found is the verb's own",
    "follow": "submit returns the job's exit code",
    "hosts": "the same hosts, reached by ssh",
    "json": "run's stdout is the script's",
    "max-run": "the job's time limit: run keeps it, plan judges it",
    "option": "an option of the engine, which is ssh on run and check",
    "plan": "the same question to the planner",
    "run-dir": "run makes the recordings that the others read",
    "steps": "plan: of the job, whose number is run's --set total_steps; bench: of a try",
    "stop-grace": "the same grace",
}
# torchrun and nccl-tests chose these letters.
LETTERS = {"m", "r", "t", "f", "n", "o"}


def rows():
    return [(verb, row) for verb in cli.all_verbs() for row in cli.verb_module(verb).VERB.rows]


def by_name():
    found = defaultdict(dict)
    for verb, row in rows():
        found[row.name][verb] = row
    return {name: of for name, of in found.items() if len(of) > 1}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)
    (tmp_path / "train.py").write_text("")


def places(verb, option):
    """The option before the verb, behind it, and at the end where no script takes what is there."""
    words = REFUSED[verb]
    yield [*option, verb, *words]
    yield [verb, *option, *words]
    if not words[-1].endswith(".py"):
        yield [verb, *words, *option]


@pytest.mark.parametrize("verb", cli.all_verbs())
def test_json_is_taken_wherever_it_stands(verb, capsys):
    for argv in places(verb, ["--json"]):
        assert main(argv) == 2, argv
        said = capsys.readouterr()
        assert json.loads(said.out)["schema"] == "paceline.error/1" and said.err == "", argv


@pytest.mark.parametrize("verb", cli.all_verbs())
def test_color_is_taken_wherever_it_stands(verb, capsys):
    for option in (["--color", "always"], ["--color=always"]):
        for argv in places(verb, option):
            assert main(argv) == 2 and "\x1b[" in capsys.readouterr().err, argv


def durations():
    for verb, row in rows():
        if row.metavar == "DURATION":
            yield pytest.param(verb, row, id=f"{verb} --{row.name}")


@pytest.mark.parametrize(("verb", "row"), list(durations()))
def test_every_time_is_a_duration(verb, row, capsys):
    before, behind = ([], ["train.py"]) if row.name == "trace-timeout" else AROUND[verb]
    for text in ("soon", "1 hour"):
        assert main([verb, *before, f"--{row.name}", text, *behind]) == 2
        said = capsys.readouterr().err
        assert f"--{row.name}" in said and "durations are 90, 90s, 15m, 12h, 1d or 1h30m" in said


def test_no_time_is_given_in_another_way():
    others = {"since": "TIME"}
    for verb, row in rows():
        if re.search(r"\b(seconds|minutes|how long|time(out| limit| between))\b", row.help.lower()) and row.metavar:
            assert row.metavar == "DURATION" or row.name == "total-steps", (verb, row.name)
        assert row.metavar not in ("SECONDS", "S", "TIME", "DELAY") or others[row.name] == row.metavar, (verb, row.name)


def test_an_option_of_several_verbs_takes_the_same_kind_of_value():
    differing = {name for name, of in by_name().items() if len({row.value for row in of.values()}) > 1}
    assert differing == set(OTHER_VALUES)


def test_an_option_of_several_verbs_has_one_sentence():
    differing = {name for name, of in by_name().items() if len({row.help for row in of.values()}) > 1}
    assert differing - set(OTHER_VALUES) == set(OTHER_SENTENCES) - set(OTHER_VALUES)


def test_an_option_that_is_passed_on_is_that_of_run():
    of_run = {row.name: row for row in cli.verb_module("run").VERB.rows}
    for verb in cli.all_verbs():
        for row in cli.verb_module(verb).VERB.passed_on:
            assert row == of_run[row.name], (verb, row.name)


def test_a_letter_has_one_meaning_unless_the_page_says_so(pytestconfig):
    meanings = defaultdict(set)
    for _, row in rows():
        if row.letter and not row.hidden:
            meanings[row.letter].add(row.name)
    assert {letter for letter, names in meanings.items() if len(names) > 1} == LETTERS
    head = (pytestconfig.rootpath / "docs" / "verbs.md").read_text().partition("\n## ")[0]
    assert all(f"`-{letter}`" in head for letter in LETTERS)


# bench has two forms, in which -m differs.
FORMS = [cli.verb_module(verb).VERB for verb in cli.all_verbs() if verb not in ("run", "bench")] + [
    _form(True),
    _form(False),
]


@pytest.mark.parametrize("shown", FORMS, ids=lambda shown: shown.name)
def test_every_unambiguous_beginning_is_the_option(shown):
    row_of = spelled((*shown.passed_on, HELP, *shown.rows))
    required = [value_of(row) for row in shown.options if row.is_positional and not row.count]
    tried = 0
    for row in shown.rows:
        if row.is_positional or row.hidden:
            continue
        short = next(
            (f"--{row.name[:end]}" for end in range(2, len(row.name)) if called(row_of, f"--{row.name[:end]}") is row),
            None,
        )
        if short is None:
            continue
        tried += 1
        value = [] if row.is_flag else [value_of(row)]
        whole = VerbParser(shown, {}).parse_own([*required, f"--{row.name}", *value])
        assert VerbParser(shown, {}).parse_own([*required, short, *value]) == whole, short
        if value:
            assert VerbParser(shown, {}).parse_own([*required, f"{short}={value[0]}"]) == whole, short
    assert tried >= 2


def value_of(row):
    return row.choices[0] if row.choices else "1"


@pytest.mark.parametrize(
    ("argv", "attribute", "value"),
    [
        ("plan --host-c 2,4", "hosts", "2,4"),
        ("bench --rehearse --si 1,2 train.py --si 3", "sizes", "1,2"),
        ("submit --eng local --nnodes 2 train.py --eng x", "engine", "local"),
        ("check --instan ml.p4d.24xlarge train.py", "instance", "ml.p4d.24xlarge"),
        ("bench --minb 1K all_reduce --nproc 2", "minbytes", "1K"),
        ("bench step --grad ring train.py --grad x", "gradients", "ring"),
        ("top --inter 5s", "interval", "5s"),
        ("sagemaker-local --jobs /a", "jobs_dir", "/a"),
    ],
)
def test_a_beginning_stands_before_a_script_too(argv, attribute, value):
    verb, *words = argv.split()
    assert getattr(cli._parse(cli.verb_module(verb), words), attribute) == value


@pytest.mark.parametrize(
    ("argv", "code", "saw"),
    [
        ("sagemaker-local --max 3", "U01", "--max-jobs, --max-hosts"),
        # Passed on to run, whose own options are written in full.
        ("submit --engine local --dry-run --on-h stop train.py", "U01", "--on-h"),
        ("bench all_reduce --loc 2", "U01", "--loc"),
    ],
)
def test_a_beginning_of_several_options_is_refused_with_their_names(argv, code, saw, capsys):
    assert main(["--json", *argv.split()]) == 2
    refused = json.loads(capsys.readouterr().out)
    assert refused["code"] == code and saw in json.dumps(refused)


def test_dir_has_one_meaning_and_run_dir_another():
    assert {verb for verb, row in by_name()["dir"].items() if not row.hidden} == {
        "logs",
        "top",
        "why",
        "report",
        "stack",
        "web",
    }
    assert set(by_name()["run-dir"]) == {
        "run",
        "ps",
        "logs",
        "top",
        "why",
        "report",
        "compare",
        "stack",
        "stop",
        "web",
        "resume",
    }


@pytest.mark.parametrize(
    ("option", "notice"), [("--dir", "from 0.3 on, jobs are kept in --jobs-dir only"), ("--jobs-dir", "")]
)
def test_the_old_spelling_of_the_servers_directory_works_with_a_notice(option, notice, tmp_path, capsys):
    from paceline.parts.sagemaker.cli.sagemaker_local import VERB, _jobs_dir

    args = VerbParser(VERB, {}).parse_args([option, str(tmp_path)])
    assert _jobs_dir(args) == tmp_path
    assert notice in (said := capsys.readouterr().err) and bool(said) is bool(notice)


def test_local_hosts_are_the_hosts_of_the_engine_local(capsys):
    asked = ["submit", "--dry-run", "--json", "--engine", "local"]
    documents = []
    for count in (["--local-hosts", "2"], ["--nnodes", "2"], ["--nnodes", "2", "--local-hosts", "2"]):
        assert main([*asked, *count, "train.py"]) == 0
        documents.append(json.loads(capsys.readouterr().out)["document"])
    for document in documents:
        document["job"] = {name: value for name, value in document["job"].items() if name not in ("command", "run_id")}
    assert documents[0] == documents[1] == documents[2] and documents[0]["local_hosts"] == 2
    assert main([*asked, "--nnodes", "3", "--local-hosts", "2", "train.py"]) == 2
    assert json.loads(capsys.readouterr().out)["code"] == "U05"
    assert main(["submit", "--dry-run", "--json", "--engine", "slurm", "--local-hosts", "2", "train.py"]) == 2
    assert json.loads(capsys.readouterr().out)["code"] == "U05"
