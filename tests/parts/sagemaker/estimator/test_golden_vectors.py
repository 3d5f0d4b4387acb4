"""The golden vectors of both SDKs, from the arguments of the API through the job file of an agent to a script's words and variables."""

import json

import pytest

from paceline.contract.hyperparameters import as_delivered, to_arguments, to_environment, to_wire
from paceline.job_file import job_file_of, job_text
from paceline.launch.prepare import on_this_host

# name, value, v2: wire, argv, variable; v3: wire, argv, variable. sagemaker-training-toolkit's own mapping functions were run for them.
VECTORS = [
    ("lr", 0.1, "0.1", ["--lr", "0.1"], "0.1", "0.1", ["--lr", "0.1"], "0.1"),
    ("name", "bert base", '"bert base"', ["--name", "bert base"], "bert base", "bert base", ["--name", "bert base"], "bert base"),
    ("flag", True, "true", ["--flag", "True"], "true", "true", ["--flag", "true"], "true"),
    ("none", None, "null", ["--none", ""], "", "null", ["--none", "null"], "null"),
    ("list", [1, "a"], '[1, "a"]', ["--list", "[1, 'a']"], '[1,"a"]', '[1, "a"]', ["--list", '[1, "a"]'], '[1, "a"]'),
    (
        "dict", {"b": 1, "a": "x y"}, '{"b": 1, "a": "x y"}', ["--dict", "a=x y,b=1"], '{"a":"x y","b":1}',
        '{"b": 1, "a": "x y"}', ["--dict", '{"b": 1, "a": "x y"}'], '{"b": 1, "a": "x y"}',
    ),
    ("five", "5", '"5"', ["--five", "5"], "5", "5", ["--five", "5"], "5"),
    ("n", 1, "1", ["-n", "1"], "1", "1", ["--n", "1"], "1"),
    ("quote", "it's", '"it\'s"', ["--quote", "it's"], "it's", "it's", ["--quote", "it's"], "it's"),
]  # fmt: skip


def contract_of(job, environ):
    """What the agent makes of the job file that the engine starts it with."""
    return on_this_host(job_file_of(json.loads(job_text(job.file)), "job.json"), environ, None).contract


@pytest.fixture
def in_the_code(project, monkeypatch):
    """The agent starts where the code was unpacked."""
    return lambda: monkeypatch.chdir(project / "src")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector[0])
def test_v2(make, in_the_code, vector):
    name, value, wire, argv, variable, *_ = vector
    job = (
        make(
            hyperparameters={name: value},
            processes_per_instance=1,
            distribution={"torch_distributed": {"enabled": True}},
        )
        .plan()
        .job
    )
    in_the_code()
    contract = contract_of(job, {})
    delivered = as_delivered(contract.hyperparameters, contract.profile)
    assert to_wire(contract.hyperparameters, "v2")[name] == wire
    assert to_arguments(delivered, contract.profile) == argv
    assert to_environment(delivered, contract.profile)[f"SM_HP_{name.upper()}"] == variable
    assert json.loads(to_environment(delivered, "v2")["SM_HPS"]) == {name: value}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector[0])
def test_v3(project, in_the_code, vector):
    from paceline.estimator import Compute, ModelTrainer, SourceCode

    name, value, *_, wire, argv, variable = vector
    code = SourceCode(source_dir="src", entry_script="train.py")
    trainer = ModelTrainer(
        source_code=code, compute=Compute(instance_type=None), engine="fake", hyperparameters={name: value}
    )
    job = trainer.train(dry_run=True).job
    in_the_code()
    contract = contract_of(job, {})
    delivered = as_delivered(contract.hyperparameters, contract.profile)
    assert contract.profile == "v3"
    assert to_wire(contract.hyperparameters, "v3")[name] == wire
    assert to_arguments(delivered, "v3") == argv
    assert to_environment(delivered, "v3")[f"SM_HP_{name.upper()}"] == variable


def test_v2_sorts_and_v3_keeps_the_order(make, in_the_code):
    job = make(hyperparameters={"z": 1, "a-b": 2}).plan().job
    in_the_code()
    contract = contract_of(job, {})
    assert to_arguments(as_delivered(contract.hyperparameters, "v2"), "v2") == ["--a-b", "2", "-z", "1"]
    assert to_environment(contract.hyperparameters, "v2")["SM_HP_A-B"] == "2"


@pytest.mark.parametrize(
    ("value", "word"),
    [(0.1, "0.1"), (True, "True"), ("bert", "bert"), ([1, "a"], "[1, 'a']"), (None, "None"), ("5", "5")],
)
def test_the_generic_estimator_without_source_dir_writes_plain_text(make, project, value, word):
    job = make("Estimator", entry_point="alone.py", source_dir=None, hyperparameters={"x": value}).plan().job
    contract = contract_of(job, {})
    assert to_arguments(as_delivered(contract.hyperparameters, "v2"), "v2") == ["-x", word]


def test_the_choice_of_a_launcher_reaches_libraries_and_not_the_script(make, in_the_code):
    from paceline.contract.hyperparameters import framework_parameters

    job = make(instance_type="local", distribution={"smdistributed": {"dataparallel": {"enabled": True}}}).plan().job
    in_the_code()
    values = as_delivered(contract_of(job, {}).hyperparameters, "v2")
    assert to_arguments(values, "v2") == []
    assert framework_parameters(values)["sagemaker_distributed_dataparallel_enabled"] is True
