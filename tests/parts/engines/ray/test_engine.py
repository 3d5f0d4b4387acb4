"""The Ray engine without Ray: what is asked for, what is refused before anything is asked, and Ray's refusals in our words."""

import json

import pytest
from submissions import a_submission, changed

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.parts.engines.base import load
from paceline.parts.engines.conformance import check_plan
from paceline.parts.engines.ray.agent_actor import installed, own_environment
from paceline.parts.engines.ray.cluster import check_versions, never_fits, refused, require_tokens
from paceline.parts.engines.ray.options import read_options
from paceline.rules import pages

ADDRESS = "10.0.0.1:6379"
JOB = a_submission(
    run_id="r-7f3a91",
    program=Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=("--lr", "3e-4")),
    hosts=2,
    ranks_per_host="4",
    max_restarts=1,
    environment={"WANDB_API_KEY": "not-to-be-shown"},
    retries=2,
)
VERSIONS = {"python": "3.11", "paceline": "0.1.0", "torch": "2.13.0+cpu"}


def engine(environ=None, **options):
    return load("ray", environ or {}, options)


def node(address, alive=True, **resources):
    return {"NodeID": f"id-{address}", "NodeManagerAddress": address, "Alive": alive, "Resources": resources}


def test_two_hosts_are_two_bundles_on_nodes_of_their_own_and_an_agent_each():
    document = engine(address=ADDRESS, gpus_per_host="4", memory_per_host="8GiB").plan(JOB).document
    bundle = {"CPU": 1.0, "GPU": 4.0, "memory": 8.0 * 2**30}
    assert document["address"] == ADDRESS
    assert document["placement_group"] == {"strategy": "STRICT_SPREAD", "bundles": [bundle, bundle]}
    assert [actor["bundle"] for actor in document["actors"]] == [0, 1]
    assert document["actors"][1]["job"]["job"] == {
        "name": "train",
        "program": {"kind": "script", "target": "train.py", "arguments": ["--lr", "3e-4"]},
        "min_hosts": 2,
        "max_hosts": 2,
        "node_rank": 1,
        "is_first": False,
        "master_addr": "<address of actor 0>",
        "max_restarts": 1,
        "submission_id": "r-7f3a91",
    }
    assert document["environment"] == ["WANDB_API_KEY"]
    assert document["runtime_env"] == {}
    assert document["retries"] == 2


def test_a_plan_is_pure_json_without_secrets():
    check_plan(engine(address=ADDRESS), JOB)
    assert "not-to-be-shown" not in json.dumps(engine().plan(JOB).document)


def test_one_host_meets_nobody_and_may_lie_anywhere():
    document = engine().plan(changed(JOB, hosts=1)).document
    assert document["placement_group"]["strategy"] == "PACK"
    assert "agents_port" not in document["actors"][0]["job"]["job"]


def test_several_hosts_share_a_node_only_when_the_user_packs_them():
    assert engine(strategy="pack").plan(JOB).document["placement_group"]["strategy"] == "PACK"


@pytest.mark.parametrize(
    ("environ", "options", "address"),
    [
        ({}, {}, "local"),
        ({"RAY_ADDRESS": "auto"}, {}, "auto"),
        ({"RAY_ADDRESS": "auto"}, {"address": ADDRESS}, ADDRESS),
        ({}, {"address": "ray://head:10001"}, "ray://head:10001"),
    ],
)
def test_the_address_is_the_options_then_ray_address_then_a_ray_of_its_own(environ, options, address):
    assert engine(environ, **options).plan(JOB).document["address"] == address


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("address", "10.0.0.1"),
        ("cpus_per_host", "many"),
        ("cpus_per_host", "1.5"),
        ("gpus_per_host", "-1"),
        ("memory_per_host", "8 gallons"),
        ("strategy", "SCATTER"),
        ("resources", "fast"),
        ("resources", "CPU=3"),
        ("wait", "soon"),
    ],
)
def test_a_value_that_an_option_cannot_take_is_refused_with_an_example(name, value):
    with pytest.raises(UsageError) as caught:
        read_options({name: value}, None)
    assert (
        caught.value.code == "U03" and value in caught.value.what and caught.value.next.startswith(f"--option {name}=")
    )


def test_an_option_that_there_is_not_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="gpu_per_host") as caught:
        engine(gpu_per_host="4")
    assert caught.value.saw == "the nearest one is gpus_per_host"


def test_a_host_that_takes_nothing_of_the_cluster_is_refused():
    with pytest.raises(UsageError):
        read_options({"cpus_per_host": "0"}, None)


def test_ranks_by_gpus_need_to_say_how_many():
    with pytest.raises(UsageError) as caught:
        engine().plan(changed(JOB, ranks_per_host="gpu"))
    assert caught.value.code == "E33"
    engine(gpus_per_host="8").plan(changed(JOB, ranks_per_host="gpu"))


def test_a_cluster_that_is_large_enough_is_not_refused():
    nodes = [node("10.0.0.1", CPU=0.0), node("10.0.0.2", CPU=1.0), node("10.0.0.3", CPU=1.0)]
    assert never_fits(read_options({}, None), 2, nodes) is None


def test_two_hosts_on_the_only_large_node_are_refused_and_packing_is_offered():
    refusal = never_fits(read_options({}, None), 2, [node("10.0.0.1", CPU=64.0)])
    assert refusal is not None and refusal.code == "E33" and refusal.next == "--option strategy=PACK"
    assert never_fits(read_options({"strategy": "PACK"}, None), 2, [node("10.0.0.1", CPU=64.0)]) is None


def test_the_refusal_says_what_every_node_has_of_what_was_asked_for():
    nodes = [node("10.0.0.2", CPU=8.0), node("10.0.0.3", alive=False, CPU=8.0, GPU=8.0)]
    refusal = never_fits(read_options({"gpus_per_host": "8"}, None), 1, nodes)
    assert refusal is not None
    assert refusal.saw == "10.0.0.2: 8 CPU, 0 GPU"
    assert "1 CPU, 8 GPU" in refusal.what


def test_a_label_of_a_build_is_no_other_version():
    check_versions(VERSIONS, {"10.0.0.2": {**VERSIONS, "torch": "2.13.0+cu126"}})


def test_another_torch_is_refused_with_the_node_and_both_versions():
    with pytest.raises(UsageError) as caught:
        check_versions(VERSIONS, {"10.0.0.2": VERSIONS, "10.0.0.3": {**VERSIONS, "torch": "2.6.0"}})
    error = caught.value
    assert error.code == "E11" and "10.0.0.3" in error.what and "2.6.0" in error.what and "2.13.0" in error.what
    assert error.next == "on 10.0.0.3: pip install 'torch==2.13.0'"


def test_another_paceline_is_installed_from_a_clone():
    with pytest.raises(UsageError) as caught:
        check_versions(VERSIONS, {"10.0.0.3": {**VERSIONS, "paceline": "0.0.1"}})
    assert caught.value.next == "on 10.0.0.3: pip install /path/to/clone"


def test_a_torch_that_is_missing_here_is_compared_among_the_nodes():
    here = {**VERSIONS, "torch": None}
    check_versions(here, {"a": VERSIONS, "b": VERSIONS})
    with pytest.raises(UsageError, match=r"b has torch 2\.6\.0, and a is torch"):
        check_versions(here, {"a": VERSIONS, "b": {**VERSIONS, "torch": "2.6.0"}})


def test_a_node_without_paceline_is_refused():
    with pytest.raises(UsageError, match="does not have paceline"):
        check_versions(VERSIONS, {"10.0.0.3": {**VERSIONS, "paceline": None}})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionError("Could not find any running Ray instance. Please specify the one to connect to"), "E10"),
        (RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.40.0\n    Python: 3.10.1"), "E11"),
        (ValueError("This node has an IP address of 10.0.0.9, and Ray expects to find it"), "E10"),
        (RuntimeError("Unauthenticated: RPC error: InvalidAuthToken: Authentication token is missing"), "E10"),
        (ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379"), "E10"),
        (RuntimeError("something that no release of Ray has said before"), "E10"),
    ],
)
def test_refusals_of_ray_are_said_in_four_parts(error, code):
    said = refused(error, ADDRESS)
    assert said.code == code and ADDRESS in said.what and said.saw and said.next


def test_a_token_in_the_words_of_ray_is_not_passed_on():
    said = refused(RuntimeError("Authentication failed for token=abcdef0123456789"), ADDRESS)
    assert "abcdef" not in said.saw


def test_an_agent_gets_the_environment_of_its_node_without_what_ray_added():
    node_has = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "RAY_JOB_ID": "01000000", "CUDA_VISIBLE_DEVICES": "3"}
    assert own_environment(node_has, b"PATH=/bin\0") == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "3"}
    assert own_environment(node_has, b"OMP_NUM_THREADS=1\0")["OMP_NUM_THREADS"] == "1"


def test_versions_are_read_without_importing_anything():
    assert set(installed()) == {"python", "paceline", "torch"}


def test_every_code_of_the_engine_has_a_page():
    assert {"E01", "E10", "E11", "E17", "E33", "U22"} <= set(pages())


@pytest.mark.parametrize("version", ["2.40.0", "2.51.2", "1.13.0"])
def test_a_ray_without_tokens_starts_no_cluster_of_its_own(version):
    with pytest.raises(UsageError, match="strangers") as caught:
        require_tokens(version)
    assert caught.value.code == "E11" and "ray>=2.52" in caught.value.next


@pytest.mark.parametrize("version", ["2.52.0", "2.60.1rc0", "3.0.0.dev0"])
def test_a_ray_with_tokens_may(version):
    require_tokens(version)
