"""All forms of `distribution=`, SageMaker's precedence, and strict keys."""

import pytest

from paceline.errors import UsageError
from paceline.estimator import InstanceGroup
from paceline.parts.sagemaker.estimator.distribution import read_distribution

ON = {"enabled": True}


def read(value, class_name="PyTorch", instance_type=None):
    return read_distribution(value, class_name=class_name, instance_type=instance_type)


@pytest.mark.parametrize(
    ("form", "strategy", "parameter"),
    [
        ({"smdistributed": {"dataparallel": ON}}, "smdistributed", "sagemaker_distributed_dataparallel_enabled"),
        ({"pytorchddp": ON}, "pytorchddp", "sagemaker_pytorch_ddp_enabled"),
        ({"torch_distributed": ON}, "torch_distributed", "sagemaker_torch_distributed_enabled"),
        ({"mpi": ON}, "mpi", "sagemaker_mpi_enabled"),
    ],
)
def test_each_form_of_pytorch_carries_its_choice_to_libraries(form, strategy, parameter):
    found = read(form, instance_type="ml.p4d.24xlarge")
    assert found.strategy == strategy
    assert found.parameters[parameter] is True


@pytest.mark.parametrize("strategy", ["parameter_server", "multi_worker_mirrored_strategy"])
def test_each_form_of_tensorflow_carries_its_choice_to_libraries(strategy):
    assert read({strategy: ON}, "TensorFlow").parameters == {f"sagemaker_{strategy}_enabled": True}


def test_nothing_and_what_is_not_enabled_start_the_script_once_per_host():
    for form in (None, {}, {"torch_distributed": {"enabled": False}}):
        assert read(form).strategy == "plain"


def test_of_several_the_first_by_precedence_counts_and_that_is_said():
    found = read({"torch_distributed": ON, "smdistributed": {"dataparallel": ON}, "mpi": ON})
    assert found.strategy == "mpi"
    assert any("mpi wins over torch_distributed and smdistributed" in notice for notice in found.notices)
    assert read({"torch_distributed": ON, "smdistributed": {"dataparallel": ON}}).strategy == "torch_distributed"
    assert read({"torch_distributed": ON, "pytorchddp": ON}).strategy == "pytorchddp"


def test_mpi_says_how_many_ranks_a_host_has_and_passes_variables_on():
    found = read(
        {
            "mpi": {
                **ON,
                "processes_per_host": 8,
                "custom_mpi_options": "-x NCCL_DEBUG=INFO -x PATH --NCCL_DEBUG WARN -bind-to none",
            }
        }
    )
    assert found.per_host == 8
    assert found.environment == {"NCCL_DEBUG": "WARN"}
    assert found.parameters["sagemaker_mpi_num_of_processes_per_host"] == 8
    assert any("-bind-to none" in notice for notice in found.notices)


def test_pytorchddp_says_what_became_of_it():
    (notice,) = read({"pytorchddp": ON}).notices
    assert "2.222" in notice and "plain DDP" in notice


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ({"mpi": {**ON, "process_per_host": 8}}, "did you mean processes_per_host?"),
        ({"torch_distribted": ON}, "did you mean torch_distributed?"),
        ({"torch_distributed": {"enable": True}}, "did you mean enabled?"),
        ({"torch_distributed": True}, "True"),
        ({"torch_distributed": {"enabled": "yes"}}, "yes"),
        ("torch_distributed", "torch_distributed"),
        ({"mpi": {**ON, "processes_per_host": 0}}, "0"),
        ({"mpi": {**ON, "custom_mpi_options": ["-x"]}}, "-x"),
        ({"mpi": {**ON, "custom_mpi_options": "-x 'A"}}, "quotation"),
        ({"smdistributed": True}, "True"),
        ({"smdistributed": {"dataparallel": ON, "modelparallel": ON}}, "dataparallel, modelparallel"),
        ({"smdistributed": {}}, "none"),
        ({"smdistributed": {"dataparalell": ON}}, "did you mean dataparallel?"),
        ({"smdistributed": {"dataparallel": ON}, "pytorchddp": ON}, "both are enabled"),
        ({"instance_groups": ["a"]}, "instance_groups"),
        ({"torch_distributed": {"enabled": False}, "instance_groups": ["a"]}, "instance_groups"),
        ({"torch_distributed": ON, "instance_groups": ["a", "b"]}, "a, b"),
        ({"torch_distributed": ON, "instance_groups": "a"}, "a"),
    ],
)
def test_what_is_malformed_is_refused(form, word):
    with pytest.raises(UsageError) as refused:
        read(form)
    error = refused.value
    assert error.code == "U31"
    assert word in error.saw
    assert error.next


@pytest.mark.parametrize(
    ("form", "class_name", "instance_type"),
    [
        ({"smdistributed": {"modelparallel": ON}}, "PyTorch", None),
        ({"pytorchxla": ON}, "PyTorch", None),
        ({"parameter_server": ON}, "PyTorch", None),
        ({"multi_worker_mirrored_strategy": ON}, "PyTorch", None),
        ({"torch_distributed": ON}, "TensorFlow", None),
        ({"mpi": ON}, "TensorFlow", None),
        ({"smdistributed": {"dataparallel": ON}}, "PyTorch", "ml.trn1.32xlarge"),
        ({"mpi": ON}, "PyTorch", "ml.trn1.32xlarge"),
    ],
)
def test_what_cannot_run_there_is_refused(form, class_name, instance_type):
    with pytest.raises(UsageError) as refused:
        read(form, class_name, instance_type)
    assert refused.value.code == "U32"


def test_the_two_forms_of_tensorflow_exclude_each_other():
    with pytest.raises(UsageError, match="exclude"):
        read({"parameter_server": ON, "multi_worker_mirrored_strategy": ON}, "TensorFlow")


def test_ranks_on_cpus_are_allowed_where_v2_refused_them(make):
    assert make(instance_type="local", distribution={"torch_distributed": ON}).plan().job.ranks_per_host == "1"


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        ({"instance_type": "ml.p4d.24xlarge", "distribution": {"torch_distributed": ON}}, "8"),
        ({"instance_type": "ml.p4d.24xlarge", "distribution": {"smdistributed": {"dataparallel": ON}}}, "8"),
        ({"instance_type": "ml.p4d.24xlarge"}, "1"),
        ({"instance_type": "ml.m5.xlarge", "distribution": {"torch_distributed": ON}}, "1"),
        ({"instance_type": "local_gpu", "distribution": {"torch_distributed": ON}}, "gpu"),
        ({"engine": "fake", "distribution": {"torch_distributed": ON}}, "gpu"),
        ({"engine": "fake", "processes_per_instance": 2, "distribution": {"torch_distributed": ON}}, "2"),
        ({"engine": "fake", "distribution": {"mpi": {**ON, "processes_per_host": 4}}}, "4"),
        ({"engine": "fake", "distribution": {"mpi": ON}}, "1"),
    ],
)
def test_how_many_ranks_a_host_gets(make, arguments, ranks):
    assert make(**arguments)._wishes().per_host == ranks


def test_a_group_that_the_job_does_not_have_is_refused(make):
    group = InstanceGroup("workers", "ml.p4d.24xlarge", 2)
    form = {"torch_distributed": ON, "instance_groups": [group]}
    assert make(instance_groups=[group], distribution=form)._wishes().distribution.groups == ("workers",)
    with pytest.raises(UsageError) as refused:
        make(distribution=form)
    assert refused.value.code == "U31"
