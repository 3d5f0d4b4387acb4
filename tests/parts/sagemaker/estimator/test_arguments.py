"""Every argument of SDK v2 is honoured, refused with a reason, or accepted with one notice; no name is swallowed."""

import ast
from pathlib import Path

import pytest

from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator.arguments import (
    ARGUMENTS,
    V1_NAMES,
    Treatment,
    accepted,
    arguments_of,
    without_meaning,
)

# Section by section as SDK v2.257 documents them, and two defaults that people rely on.
V2_DEFAULTS = {
    "role": None, "instance_count": None, "instance_type": None, "instance_groups": None, "keep_alive_period_in_seconds": None,
    "volume_size": 30, "volume_kms_key": None, "output_kms_key": None, "encrypt_inter_container_traffic": False,
    "enable_network_isolation": False, "max_run": 86400, "max_wait": None, "use_spot_instances": False, "max_retry_attempts": None,
    "input_mode": "File", "output_path": None, "base_job_name": None, "code_location": None, "tags": None, "subnets": None,
    "security_group_ids": None, "model_uri": None, "model_channel_name": "model", "metric_definitions": None, "checkpoint_s3_uri": None,
    "checkpoint_local_path": None, "debugger_hook_config": None, "rules": None, "tensorboard_output_config": None,
    "profiler_config": None, "disable_profiler": None, "enable_sagemaker_metrics": None, "environment": None, "hyperparameters": None,
    "source_dir": None, "entry_point": None, "dependencies": None, "git_config": None, "container_log_level": 20,
    "container_entry_point": None, "container_arguments": None, "training_repository_access_mode": None, "enable_infra_check": None,
    "disable_output_compression": False, "enable_remote_debug": None, "enable_session_tag_chaining": None, "training_plan": None,
    "instance_placement_config": None,
}  # fmt: skip


def test_the_table_has_every_argument_of_v2_with_its_default():
    rows = arguments_of("Estimator")
    assert {name: rows[name].default for name in V2_DEFAULTS} == V2_DEFAULTS


def test_every_row_has_one_name_and_a_reason():
    assert len({row.name for row in ARGUMENTS}) == len(ARGUMENTS)
    assert all(row.why for row in ARGUMENTS)


@pytest.mark.parametrize(
    "row", [row for row in ARGUMENTS if row.treatment is Treatment.REFUSED], ids=lambda row: row.name
)
def test_a_refused_argument_says_why(row):
    class_name = (row.only or ("Estimator",))[0]
    with pytest.raises(UsageError) as refused:
        accepted(class_name, {row.name: "anything"})
    assert refused.value.code == "U32"
    assert row.why in refused.value.what


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("instance_cuont", "instance_count"),
        ("hyper_parameters", "hyperparameters"),
        ("max_runtime", "max_run"),
        ("sourcedir", "source_dir"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_spelling(make, name, near):
    with pytest.raises(UsageError) as refused:
        make(**{name: 1})
    assert refused.value.code == "U01"
    assert near in refused.value.next


def test_a_name_that_nothing_is_near_to_is_refused_too(make):
    with pytest.raises(UsageError, match="zzz"):
        make(zzz=1)


@pytest.mark.parametrize(("old", "new"), sorted(V1_NAMES.items()))
def test_a_name_of_v1_is_taken_under_todays_name_with_a_notice(old, new):
    values, notices = accepted("PyTorch", {old: 7})
    assert values[new] == 7
    assert old in notices[0] and new in notices[0]


def test_an_old_and_a_new_name_together_are_refused():
    with pytest.raises(UsageError, match="one argument"):
        accepted("PyTorch", {"instance_count": 1, "train_instance_count": 2})


def test_the_generic_estimator_refuses_the_distribution_that_v2_ignored(make):
    with pytest.raises(UsageError) as refused:
        make("Estimator", distribution={"torch_distributed": {"enabled": True}})
    assert "PyTorch" in refused.value.next


def test_what_means_nothing_off_sagemaker_is_said_in_one_notice(make, capsys):
    make(role="arn:aws:iam::1:role/x", volume_size=100, tags=[{"Key": "team", "Value": "vision"}]).fit(wait=False)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "notice" in line]
    assert all(name in line for name in ("role", "volume_size", "tags"))


def test_a_default_given_by_hand_and_a_debugger_that_is_off_need_no_notice():
    values, _ = accepted(
        "PyTorch", {"volume_size": 30, "debugger_hook_config": False, "disable_profiler": True, "rules": []}
    )
    assert without_meaning("PyTorch", values, False) == ()


def test_on_sagemaker_only_what_nobody_reads_is_without_meaning():
    values, _ = accepted("PyTorch", {"role": "r", "rules": ["x"], "sagemaker_session": object()})
    assert without_meaning("PyTorch", values, True) == ("sagemaker_session", "rules")


def test_every_argument_is_an_attribute_and_the_hyperparameters_a_method(make):
    made = make(hyperparameters={"lr": 0.1}, max_run=60)
    assert (made.max_run, made.volume_size, made.hyperparameters()) == (60, 30, {"lr": 0.1})


def test_an_attribute_that_is_changed_counts_at_the_next_fit(make):
    made = make()
    made.max_run = 60
    assert made.plan().job.max_run_seconds == 60
    made.max_run = "soon"
    with pytest.raises(UsageError, match="max_run"):
        made.plan()


@pytest.mark.parametrize(
    ("name", "near"), [("instnce_count", "instance_count"), ("max_runs", "max_run"), ("train_max_run", "max_run")]
)
def test_a_misspelt_attribute_is_refused_too(make, name, near):
    with pytest.raises(UsageError) as refused:
        setattr(make(), name, 1)
    assert refused.value.next == f"write {near}=..."


def test_an_attribute_of_the_users_own_is_left_alone(make):
    made = make()
    made.note = "mine"
    assert made.note == "mine"


def test_a_subclass_of_the_users_has_the_arguments_of_ours(project):
    from paceline.estimator import PyTorch

    class Mine(PyTorch):
        pass

    assert Mine("train.py", source_dir="src", instance_count=1, engine="fake").plan().engine == "fake"


def test_no_module_of_the_room_imports_torch_or_boto3(repository):
    for path in Path(repository / "src/paceline/parts/sagemaker/estimator").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [getattr(node, "module", "") or ""]
            )
            assert not {name.split(".")[0] for name in names} & {"torch", "boto3", "ray"}, path


def test_the_page_has_the_table_row_by_row(repository):
    page = (repository / "docs/estimator.md").read_text().splitlines()
    missing = [row_of_page(row) for row in ARGUMENTS if row_of_page(row) not in page]
    assert not missing, "docs/estimator.md, Arguments:\n" + "\n".join(missing)
    listed = [
        line.split("`")[1]
        for line in page
        if line.startswith("| `") and line.count(" | ") == 3 and "instance_type=" not in line
    ]
    assert set(listed) == {row.name for row in ARGUMENTS}


def row_of_page(row):
    default = "" if row.default is None else f"`{row.default!r}`"
    only = f" ({', '.join(row.only)} only)" if row.only else ""
    return f"| `{row.name}` | {default} | {row.treatment} | {row.why}{only} |"
