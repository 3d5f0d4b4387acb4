import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.contract import prepare_host
from paceline.contract.entry import command, first_line_of
from paceline.contract.prepare import base_directory
from paceline.errors import UsageError
from paceline.facts import Channel, Contract, Program, ProgramKind

TWELVE = tuple(f"algo-{number}" for number in range(1, 13))


def program(target="train.py", *arguments, kind=ProgramKind.SCRIPT):
    return Program(kind=kind, target=str(target), arguments=arguments)


def prepare(contract, base, **changes):
    values = {
        "base": base,
        "job_name": "digits",
        "hosts": ("algo-1",),
        "current_host": "algo-1",
        "program": program(),
        "master_addr": "127.0.0.1",
        "master_port": 29400,
        "cpu_count": 2,
        "environ": {},
    }
    return prepare_host(contract, **{**values, **changes})


def data(directory, *names):
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_text(name)
    return str(directory)


def contents(base):
    return {str(path.relative_to(base)): path.read_text() for path in base.rglob("*") if path.is_file()}


def test_a_run_without_any_option_has_a_tree_and_no_arguments(tmp_path):
    prepared = prepare(Contract(), tmp_path / "ml")
    assert prepared.script_arguments == ()
    assert prepared.working_directory is None
    assert prepared.findings == ()
    assert Path(prepared.environment["SM_MODEL_DIR"]).is_dir()
    assert prepared.environment["SAGEMAKER_BASE_DIR"] == str(tmp_path / "ml")
    assert prepared.environment["SM_NETWORK_INTERFACE_NAME"] == "lo"
    assert json.loads((tmp_path / "ml/input/config/hyperparameters.json").read_text()) == {}


def test_the_users_own_arguments_come_first_and_stay_as_they_are(tmp_path):
    contract = Contract(hyperparameters={"name": "it's", "flag": True})
    prepared = prepare(contract, tmp_path, program=program("train.py", "finetune", "--lr", "1"))
    assert prepared.script_arguments == ("finetune", "--lr", "1", "--flag", "True", "--name", "it's")
    assert json.loads(prepared.environment["SM_USER_ARGS"]) == list(prepared.script_arguments)


def test_the_profile_decides_how_a_boolean_is_written(tmp_path):
    values = {"flag": True}
    v2 = prepare(Contract(hyperparameters=values), tmp_path / "2")
    v3 = prepare(Contract(hyperparameters=values, profile="v3"), tmp_path / "3")
    assert v2.script_arguments == ("--flag", "True")
    assert v3.script_arguments == ("--flag", "true")
    assert v2.environment["SM_HP_FLAG"] == v3.environment["SM_HP_FLAG"] == "true"


def test_a_second_call_changes_nothing(tmp_path):
    contract = Contract(
        hyperparameters={"lr": 0.1},
        channels=(Channel(name="train", source=data(tmp_path / "data", "a", "b"), distribution="ShardedByS3Key"),),
    )
    first = prepare(contract, tmp_path / "ml", hosts=("algo-1", "algo-2"))
    before = contents(tmp_path / "ml")
    assert prepare(contract, tmp_path / "ml", hosts=("algo-1", "algo-2")) == first
    assert contents(tmp_path / "ml") == before


def test_twelve_hosts_share_a_sharded_channel_completely(tmp_path):
    names = [f"part-{number:02}" for number in range(24)]
    contract = Contract(
        channels=(Channel(name="train", source=data(tmp_path / "data", *names), distribution="ShardedByS3Key"),)
    )
    seen = []
    for host in TWELVE:
        prepared = prepare(contract, tmp_path / host, hosts=TWELVE, current_host=host)
        assert prepared.findings == ()
        seen += [path.name for path in Path(prepared.environment["SM_CHANNEL_TRAIN"]).iterdir()]
    assert sorted(seen) == names


def test_unequal_shards_are_found_once(tmp_path):
    source = data(tmp_path / "data", "a", "b", "c")
    channels = (Channel(name="train", source=source, distribution="ShardedByS3Key"), Channel(name="x", source=source))
    prepared = prepare(Contract(channels=channels), tmp_path / "ml", hosts=("algo-1", "algo-2"))
    assert [finding.code for finding in prepared.findings] == ["U15"]


def test_the_order_of_hosts_is_that_of_the_node_ranks_whatever_their_names(tmp_path):
    prepared = prepare(Contract(), tmp_path, hosts=("zeus", "apollo"), current_host="apollo", master_addr="zeus")
    assert json.loads(prepared.environment["SM_HOSTS"])[0] == prepared.environment["SM_MASTER_ADDR"]
    assert prepared.environment["SM_CURRENT_HOST_RANK"] == "1"


def test_a_restart_at_a_smaller_size_deals_the_files_out_again(tmp_path):
    contract = Contract(
        channels=(Channel(name="train", source=data(tmp_path / "data", "a", "b"), distribution="ShardedByS3Key"),)
    )
    prepare(contract, tmp_path / "ml", hosts=("algo-1", "algo-2"))
    prepared = prepare(contract, tmp_path / "ml", hosts=("algo-1",))
    assert {path.name for path in Path(prepared.environment["SM_CHANNEL_TRAIN"]).iterdir()} == {"a", "b"}
    assert json.loads(prepared.tree.resource_config_file.read_text())["hosts"] == ["algo-1"]


def test_an_unreadable_channel_is_refused(tmp_path):
    contract = Contract(channels=(Channel(name="train", source=str(tmp_path / "none")),))
    with pytest.raises(UsageError) as refused:
        prepare(contract, tmp_path / "ml")
    assert refused.value.code == "U06"


def test_the_outcome_of_the_last_attempt_does_not_stay(tmp_path):
    prepared = prepare(Contract(), tmp_path)
    prepared.tree.failure.write_text("out of memory")
    prepare(Contract(), tmp_path)
    assert not prepared.tree.failure.exists()


def deliver(base, **hyperparameters):
    config = base / "input" / "config"
    config.mkdir(parents=True)
    group = {"instance_group_name": "g", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-2", "algo-1"]}
    resources = {
        "current_host": "algo-2",
        "current_instance_type": "ml.p4d.24xlarge",
        "current_group_name": "g",
        "hosts": ["algo-1", "algo-2"],
        "instance_groups": [group],
        "network_interface_name": "eth1",
    }
    wire = {key: json.dumps(value) for key, value in hyperparameters.items()}
    (config / "resourceconfig.json").write_text(json.dumps(resources))
    (config / "hyperparameters.json").write_text(json.dumps(wire))
    (config / "inputdataconfig.json").write_text(json.dumps({"train-data": {"TrainingInputMode": "File"}}))


def test_the_files_of_a_real_container_are_read_and_not_touched(tmp_path):
    deliver(tmp_path, lr=0.1, flag=True)
    before = contents(tmp_path)
    prepared = prepare(
        Contract(hyperparameters={"lr": 0.2}, opt_ml=True),
        tmp_path,
        hosts=("algo-1", "algo-2"),
        current_host="algo-2",
        environ={"TRAINING_JOB_NAME": "pytorch-2026"},
    )
    assert contents(tmp_path) == before
    found = prepared.environment
    assert json.loads(found["SM_HPS"]) == {"lr": 0.2, "flag": True}
    assert found["TRAINING_JOB_NAME"] == "pytorch-2026"
    assert found["SM_CURRENT_INSTANCE_TYPE"] == "ml.p4d.24xlarge"
    assert found["SM_NETWORK_INTERFACE_NAME"] == "eth1"
    assert found["SM_CHANNEL_TRAIN-DATA"] == str(tmp_path / "input/data/train-data")


def test_groups_in_reversed_order_give_every_host_its_own_rank(tmp_path):
    ranks = []
    for current in ("algo-1", "algo-2"):
        deliver(tmp_path / current)
        prepared = prepare(Contract(), tmp_path / current, hosts=("algo-1", "algo-2"), current_host=current)
        ranks.append(prepared.environment["SM_CURRENT_HOST_RANK"])
        assert prepared.environment["SM_CURRENT_INSTANCE_GROUP_HOSTS"] == '["algo-1","algo-2"]'
    assert ranks == ["0", "1"]


def test_output_directories_that_the_user_set_beforehand_stay(tmp_path):
    kept = prepare(Contract(), tmp_path, environ={"SM_MODEL_DIR": "out", "SM_HOSTS": "[]"})
    assert kept.environment["SM_MODEL_DIR"] == "out"
    assert kept.environment["SM_HOSTS"] == '["algo-1"]'
    nested = prepare(Contract(), tmp_path, environ={"SM_MODEL_DIR": "out", "PACELINE_RUN_ID": "r-000001"})
    assert nested.environment["SM_MODEL_DIR"] == str(tmp_path / "model")


def test_a_code_directory_is_where_the_ranks_start(tmp_path):
    code = tmp_path / "code"
    (code / "src").mkdir(parents=True)
    (code / "src" / "train.py").touch()
    prepared = prepare(Contract(code_dir=str(code)), tmp_path / "ml", program=program("src/train.py"))
    assert prepared.working_directory == prepared.environment["SM_MODULE_DIR"] == str(code)
    assert prepared.environment["SM_USER_ENTRY_POINT"] == "src/train.py"
    assert (prepared.tree.code / "src" / "train.py").exists()


def test_a_variable_that_no_process_could_carry_is_left_out_and_said(tmp_path):
    many = {f"h{number}": "x" * 2000 for number in range(100)}
    prepared = prepare(Contract(hyperparameters={**many, "lr": 0.1}), tmp_path)
    assert prepared.environment["SM_HP_LR"] == "0.1"
    assert prepared.environment["SM_HP_H99"] == "x" * 2000
    left_out = {finding.what.split()[0] for finding in prepared.findings}
    assert left_out == {"SM_HPS", "SM_TRAINING_ENV", "SM_USER_ARGS"}
    assert not left_out & set(prepared.environment)


def test_every_host_has_a_base_directory_of_its_own(tmp_path):
    recording = tmp_path / "hosts" / "algo-2" / "ml"
    assert base_directory(Contract(), below=recording, host="algo-2", several_here=True) == recording
    mine = Contract(base_dir=str(tmp_path / "base"))
    assert base_directory(mine, below=recording, host="algo-2", several_here=False) == tmp_path / "base"
    assert base_directory(mine, below=recording, host="algo-2", several_here=True) == tmp_path / "base" / "algo-2"
    assert base_directory(Contract(opt_ml=True), below=recording, host="algo-2", several_here=False) == Path("/opt/ml")


@pytest.mark.process
def test_a_shell_script_sees_the_whole_contract(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text('printf "%s|" "$@" "$SM_HP_NAME" "$SM_CHANNEL_TRAIN_DATA"; cat "$SM_CHANNEL_TRAIN_DATA/a"\n')
    contract = Contract(
        hyperparameters={"name": "it's", "flag": True},
        channels=(Channel(name="train-data", source=data(tmp_path / "data", "a")),),
    )
    job = program(script, "a b")
    prepared = prepare(contract, tmp_path / "ml", program=job)
    argv = command(job, python=sys.executable, arguments=prepared.script_arguments, first_line=first_line_of(script))
    environment = {**os.environ, **prepared.environment}
    printed = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed == f"a b|--flag|True|--name|it's|it's|{tmp_path}/ml/input/data/train-data|a"


@pytest.mark.process
def test_python_sees_the_dashed_channel_as_sagemakers_execve_passes_it(tmp_path):
    contract = Contract(channels=(Channel(name="train-data", source=data(tmp_path / "data", "a")),))
    prepared = prepare(contract, tmp_path / "ml")
    argv = [sys.executable, "-c", "import os; print(os.listdir(os.environ['SM_CHANNEL_TRAIN-DATA']))"]
    environment = {**os.environ, **prepared.environment}
    assert subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout == "['a']\n"
