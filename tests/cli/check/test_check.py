"""`paceline check`: what it looks at, prints and ends with."""

import json

import pytest

from paceline.cli import main
from paceline.probes.gpus import has_accelerator

RIGHT = "print('trained')\n"
WRONG = 'import os\nn = int(os.environ["SM_HOSTS"])\nm = len(os.environ["SM_HOSTS"])\n'


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "warned.py").write_text(WRONG.replace("n = int", "if n:\n    k = int"))
    return tmp_path


def test_a_script_without_a_mistake_ends_with_0(capsys):
    assert main(["check", "train.py"]) == 0
    assert capsys.readouterr().out.startswith("checks: ")


def test_a_mistake_is_named_with_its_line_and_ends_with_1(capsys):
    assert main(["check", "wrong.py"]) == 1
    text = capsys.readouterr().out
    assert "error[K07]: wrong.py:2: SM_HOSTS is a JSON list" in text and "warning[K07]: wrong.py:3" in text


@pytest.mark.parametrize(
    ("script", "fail_on", "code"),
    [
        ("wrong.py", "never", 0),
        ("wrong.py", "k07", 1),
        ("wrong.py", "K08", 0),
        ("warned.py", "error", 0),
        ("warned.py", "warning", 1),
    ],
)
def test_what_ends_with_1_is_the_users_to_say(script, fail_on, code, capsys):
    assert main(["check", "--fail-on", fail_on, script]) == code


def test_nothing_of_the_script_is_executed(project, capsys):
    (project / "writes.py").write_text("import helper\nopen('made', 'w').close()\n")
    (project / "helper.py").write_text("open('made-too', 'w').close()\n")
    assert main(["check", "writes.py"]) == 0
    assert not [path for path in project.iterdir() if path.name.startswith("made")]


def test_without_a_script_this_machine_is_looked_at(project, capsys):
    assert main(["check", "--json", "--fail-on", "never"]) == 0
    answer = json.loads(capsys.readouterr().out)
    seen = {*answer["silent"], *(one["code"] for one in (*answer["findings"], *answer["not_judged"]))}
    assert seen == {f"K{number}" for number in range(30, 40)}


def test_more_ranks_than_this_machine_has_cpus_are_a_warning_where_it_has_no_gpu(capsys):
    if has_accelerator() is not False:
        pytest.skip("this machine may have a GPU")
    assert main(["check", "--nproc-per-node", "4000", "--fail-on", "K02", "train.py"]) == 1
    assert "warning[K02]: 4000 ranks on each host share" in capsys.readouterr().out


def test_a_port_that_is_taken_is_an_error(project, capsys):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = [
            "check",
            "--fail-on",
            "K31",
            "--nnodes",
            "2",
            "--master-addr",
            "127.0.0.1",
            "--master-port",
            port,
            "train.py",
        ]
        assert main(line) == 1
        assert f"port {port} of" in capsys.readouterr().out
    assert main(line) == 0


def answered(capsys, *argv: str) -> dict:
    assert main(["check", "--json", "--fail-on", "never", *argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_hosts_of_an_engine_are_compared_and_a_pair_that_cannot_connect_is_named(capsys):
    options = ("--engine", "fake", "--nnodes", "2", "--option", "torch=2.0,2.1", "--option", "cut=host-1")
    answer = answered(capsys, *options)
    found = {one["what"] for one in answer["findings"]}
    assert "the hosts have different versions of torch" in found
    assert {"host-0 cannot connect to host-1", "host-1 cannot connect to host-0"} <= found


def test_a_host_without_an_answer_is_an_error_and_the_others_are_judged(capsys):
    answer = answered(capsys, "--engine", "fake", "--nnodes", "3", "--option", "gone=host-2")
    assert "host-2 is gone" in {one["what"] for one in answer["findings"]} and "K37" in answer["silent"]


def test_where_no_host_is_free_the_script_is_judged_and_the_hosts_are_not(capsys):
    answer = answered(capsys, "--engine", "fake", "--option", "busy=yes", "--wait", "5s", "wrong.py")
    assert "K07" in {one["code"] for one in answer["findings"]}
    unseen = {one["code"] for one in answer["not_judged"] if "free within 5 s" in one["missing"]}
    assert unseen == {f"K{number}" for number in range(30, 40)}


def test_of_sagemaker_the_job_is_judged_and_the_machines_are_not(capsys):
    answer = answered(capsys, "--engine", "sagemaker", "--option", "instance_type=ml.p3dn.48xlarge", "train.py")
    assert "K01" in {one["code"] for one in answer["findings"]}
    assert sum("paid for" in one["missing"] for one in answer["not_judged"]) == 10


def test_a_machine_without_ssh_is_an_error_and_the_hosts_are_not_judged(capsys):
    answer = answered(capsys, "--hosts", "algo-1,algo-2", "--option", "ssh=/nonexistent")
    assert [one["code"] for one in answer["findings"]] == ["E01"] and len(answer["not_judged"]) == 10


def test_sagemakers_api_on_this_machine_is_this_machine(capsys):
    assert not {"K33", "K35"} & {one["code"] for one in answered(capsys, "--engine", "sagemaker-local")["not_judged"]}


def test_what_is_not_known_of_the_other_hosts_of_a_job_by_hand_is_not_judged(capsys):
    answer = answered(capsys, "--nnodes", "2", "--master-addr", "algo-1")
    assert {"K37", "K38", "K39"} <= {one["code"] for one in answer["not_judged"]}
    assert {"K37", "K38", "K39"} <= set(answered(capsys)["silent"])


def test_options_of_run_describe_the_job(project, capsys):
    (project / "spawns.py").write_text("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n")
    assert main(["check", "--fail-on", "K13", "spawns.py"]) == 0
    assert main(["check", "--fail-on", "K13", "--nproc-per-node", "2", "spawns.py"]) == 1
    assert main(["check", "--fail-on", "K21", "--nnodes", "2", "train.py"]) == 1
    assert main(["check", "--fail-on", "K21", "--nnodes", "2", "--master-addr", "algo-1", "train.py"]) == 0
    assert main(["check", "--fail-on", "K21", "--local-hosts", "2", "train.py"]) == 0
    # There nobody types where the hosts meet.
    assert main(["check", "--fail-on", "K21", "--instance", "ml.m5.large", "--nnodes", "2", "train.py"]) == 0
    assert main(["check", "--fail-on", "K21", "--engine", "sagemaker", "--nnodes", "2", "train.py"]) == 0
    assert main(["check", "--fail-on", "K20", "train.py", "--nnodes", "2"]) == 1


def test_a_program_gets_one_object(capsys):
    assert main(["check", "--json", "wrong.py"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["passed"], answer["counts"]["error"]) == ("paceline.checks/1", False, 1)
    assert [(one["code"], one["file"], one["line"]) for one in answer["findings"]] == [
        ("K07", "wrong.py", 2),
        ("K07", "wrong.py", 3),
    ]


def test_sarif_has_a_rule_and_a_place_for_each_finding(project, capsys):
    (project / "wrong.py").write_text(
        WRONG.replace('len(os.environ["SM_HOSTS"])', 'len(os.environ["SM_HOSTS"])  # paceline: ignore[K07]')
    )
    assert main(["check", "--sarif", "check.sarif", "wrong.py"]) == 1
    log = json.loads((project / "check.sarif").read_text())
    (run,) = log["runs"]
    first, second = run["results"]
    assert log["version"] == "2.1.0" and run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "K07"
    place = first["locations"][0]["physicalLocation"]
    assert (first["level"], place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("error", "wrong.py", 2)
    assert second["suppressions"] == [{"kind": "inSource"}] and "suppressions" not in first


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["missing.py"], "U02", "there is no script missing.py"),
        (["--nprocs-per-node", "2", "train.py"], "U01", "unknown option"),
        (["--fail-on", "eror", "train.py"], "U03", "nothing that can be found"),
        (["--max-run", "soon", "train.py"], "U03", "--max-run 'soon' is not a duration"),
        (["--sarif", "/nowhere/x.sarif", "train.py"], "U22", "SARIF"),
        (["--engine", "kubernetes"], "E01", "there is no engine 'kubernetes'"),
        (["--wait", "soon"], "U03", "--wait 'soon' is not a duration"),
        (["--option", "nodes"], "U03", "is not KEY=VALUE"),
    ],
)
def test_what_cannot_be_checked_is_refused(argv, code, says, capsys):
    assert main(["check", *argv]) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"error[{code}]") and says in text
