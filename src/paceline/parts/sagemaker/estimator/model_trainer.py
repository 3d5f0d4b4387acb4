"""ModelTrainer with the API of the SageMaker SDK's v3. It makes the same jobs as the estimators."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from paceline.errors import UsageError
from paceline.parts.engines.base import ENGINES, Request
from paceline.parts.sagemaker.estimator.arguments import shown
from paceline.parts.sagemaker.estimator.code import COMMAND_FILE
from paceline.parts.sagemaker.estimator.inputs import FileSystemInput, TrainingInput
from paceline.parts.sagemaker.estimator.instances import on_engine_of
from paceline.parts.sagemaker.estimator.job import JobSpec, new_job_name, wishes_of, with_notices
from paceline.parts.sagemaker.estimator.model_trainer_parts import (
    DEFAULT_RUN_SECONDS,
    MPI,
    CheckpointConfig,
    Compute,
    InputData,
    Networking,
    OutputDataConfig,
    SourceCode,
    StoppingCondition,
    Torchrun,
    of_kind,
    read_attribute,
    strict,
)
from paceline.parts.sagemaker.estimator.session import surroundings
from paceline.parts.sagemaker.estimator.submit import not_fitted, planned, submit
from paceline.parts.sagemaker.estimator.training_job import TrainingJob, find_job

_REFUSED = {
    "algorithm_name": "an algorithm of SageMaker's own is a closed container; paceline runs scripts",
    "training_image_config": "it belongs to private registries; the engine's option image names one that the role can read",
}


@strict
@dataclass(kw_only=True, eq=False, repr=False)
class ModelTrainer:
    """SDK v3's trainer. The `with_...` methods add the same things as in v3. docs/estimator.md says how each field is treated."""

    around = staticmethod(surroundings)

    training_mode: str | Any = "SAGEMAKER_TRAINING_JOB"
    """Either "SAGEMAKER_TRAINING_JOB", or "LOCAL_CONTAINER" for this machine. SDK v3's Mode is accepted as well."""
    sagemaker_session: Any = None
    """This field has no effect: the engine makes its own boto3 client."""
    role: str | None = None
    """The IAM role of the job. Only SageMaker reads this field."""
    base_job_name: str | None = None
    """The job's name is this text and the time."""
    source_code: SourceCode | None = None
    """The script and the directory that is shipped with the script."""
    distributed: Torchrun | MPI | None = None
    """How ranks start. With None, the script starts once on each host."""
    compute: Compute | None = None
    """The hosts."""
    networking: Networking | None = None
    """The VPC of the job. Only SageMaker reads this field."""
    stopping_condition: StoppingCondition | None = None
    """Time limits. With None, the limit is one hour, and a notice says so."""
    training_image: str | None = None
    """The container image. On other engines than SageMaker, the host runs the Python that runs paceline."""
    training_image_config: None = None
    """Refused."""
    algorithm_name: None = None
    """Refused."""
    output_data_config: OutputDataConfig | None = None
    """The location of model.tar.gz and output.tar.gz."""
    input_data_config: Sequence[InputData] | None = None
    """The channels. Channels of train() replace channels of the same name."""
    checkpoint_config: CheckpointConfig | None = None
    """The location that is kept in sync with the checkpoints directory."""
    training_input_mode: str = "File"
    """One of "File", "FastFile" and "Pipe". On other engines than SageMaker, each becomes "File", with a notice."""
    environment: Mapping[str, str] | None = None
    """Environment variables of every rank. Their values are never shown."""
    hyperparameters: Mapping[str, Any] | str | Path | None = None
    """The script's arguments, or the JSON or YAML file with the arguments."""
    tags: Sequence[Mapping[str, str]] | Mapping[str, str] | None = None
    """Tags of the job. Only SageMaker reads this field."""
    local_container_root: str | None = None
    """This field has no effect: every run has its own directory."""
    engine: str | None = None
    """Paceline's own field: local, ssh, ray, slurm or sagemaker, if the instance type does not determine the engine."""
    engine_options: Mapping[str, Any] | None = None
    """Paceline's own field: options that only this engine understands, such as {'hosts': 'a,b'}."""
    raise_on_timeout: bool = True
    """Paceline's own field: with False, train() returns after the time limit, as SDK v2 does."""

    def __post_init__(self) -> None:
        self._added: dict[str, Any] = {}
        self.latest_training_job: TrainingJob | None = None
        # As in v3, the attribute has the content of the file.
        self.hyperparameters = _hyperparameters(self.hyperparameters)
        self._wishes()

    def train(
        self,
        input_data_config: Sequence[Any] | None = None,
        wait: bool = True,
        logs: bool = True,
        dry_run: bool = False,
    ) -> Request | None:
        """Check everything and submit the job. With `dry_run`, return the request for the engine instead.

        Raises:  UsageError: refused before anything was sent; UnexpectedStatusException, CapacityError, TrainingTimeout: the job failed
        """
        spec, inputs, around = self._wishes(), self._inputs(input_data_config), self.around()
        name = new_job_name(self._base_name() or "model-trainer", around.now_ns())
        if dry_run:
            return planned(spec, inputs, name, around)
        self.latest_training_job = submit(spec, inputs, name, around)
        if wait:
            self.latest_training_job.wait("All" if logs else None)
        return None

    @classmethod
    def attach(cls, training_job_name: str) -> TrainingJob:
        """The job with that name or run id.

        Raises:  UsageError U09: no such job
        """
        return find_job(training_job_name, surroundings())

    @property
    def _latest_training_job(self) -> TrainingJob | None:
        """The latest job, under the name that notebooks of v3 use."""
        return self.latest_training_job

    def stop(self, *, now: bool = False) -> None:
        """End the latest job; see TrainingJob.stop."""
        self._job().stop(now=now)

    def describe(self) -> dict[str, Any]:
        """The latest job in the shape of DescribeTrainingJob's answer."""
        return self._job().describe()

    def metrics(self) -> list[dict[str, Any]]:
        """The values that the metric definitions found in the latest job's output."""
        return self._job().metrics()

    def with_metric_definitions(self, metric_definitions: Sequence[Any]) -> Self:
        """Add metrics to read from the output: name and regex of each."""
        plain = [
            {"Name": read_attribute(one, "Name", "name"), "Regex": read_attribute(one, "Regex", "regex")}
            for one in metric_definitions
        ]
        return self._with(metric_definitions=plain)

    def with_retry_strategy(self, retry_strategy: object) -> Self:
        """Set how often the job is started again after a lost host."""
        attempts = read_attribute(retry_strategy, "maximum_retry_attempts", "MaximumRetryAttempts")
        return self._with(max_retry_attempts=attempts if attempts is not None else retry_strategy)

    def with_checkpoint_config(self, checkpoint_config: CheckpointConfig | None = None) -> Self:
        """Set the location that is kept in sync with the checkpoints directory."""
        self.checkpoint_config = of_kind("checkpoint_config", checkpoint_config, CheckpointConfig)
        self._wishes()
        return self

    def with_infra_check_config(self, infra_check_config: object = None) -> Self:
        """Ask for SageMaker's check of its machines. Other engines give a notice."""
        return self._with(enable_infra_check=_switch(infra_check_config, "enable_infra_check"))

    def with_remote_debug_config(self, remote_debug_config: object = None) -> Self:
        """Ask for a shell into the container. Other engines give a notice."""
        return self._with(enable_remote_debug=_switch(remote_debug_config, "enable_remote_debug"))

    def with_session_chaining_config(self, session_chaining_config: object = None) -> Self:
        """Set tags of the session for the role. Other engines give a notice."""
        return self._with(enable_session_tag_chaining=_switch(session_chaining_config, "enable_session_tag_chaining"))

    def with_tensorboard_output_config(self, tensorboard_output_config: object = None) -> Self:
        """Event files are not copied; a notice says where the script should write them."""
        return self._with(tensorboard_output_config=tensorboard_output_config or True)

    @classmethod
    def from_recipe(cls, *positional: object, **fields: object) -> NoReturn:
        """Always refused: recipes are containers and scripts of HyperPod.

        Raises:  UsageError U32
        """
        raise _refused(
            "from_recipe",
            "recipes are containers and scripts of HyperPod",
            "source_code=SourceCode(entry_script='train.py')",
        )

    @classmethod
    def from_jumpstart_config(cls, *positional: object, **fields: object) -> NoReturn:
        """Always refused: JumpStart's models have their own containers.

        Raises:  UsageError U32
        """
        raise _refused(
            "from_jumpstart_config",
            "JumpStart's models are closed containers",
            "source_code=SourceCode(entry_script='train.py')",
        )

    def _with(self, **values: Any) -> Self:
        before = dict(self._added)
        self._added.update(values)
        try:
            self._wishes()
        except UsageError:
            self._added = before
            raise
        return self

    def _base_name(self) -> Any:
        base = self.base_job_name
        return base.replace("_", "-") if isinstance(base, str) else base

    def _job(self) -> TrainingJob:
        if self.latest_training_job is None:
            raise not_fitted()
        return self.latest_training_job

    def _inputs(self, given: Sequence[Any] | None) -> dict[str, Any] | None:
        """Channels of the constructor, overridden by train()'s channels of the same name."""
        found: dict[str, Any] = {}
        for one in (*(self.input_data_config or ()), *(given or ())):
            if not isinstance(one, InputData):
                raise UsageError(
                    "U01",
                    "input_data_config is a list of InputData",
                    saw=shown(one),
                    next="[InputData(channel_name='train', data_source='...')]",
                )
            source = one.data_source
            if isinstance(source, str | Path) and one.content_type:
                source = TrainingInput(str(source), content_type=one.content_type)
            if not isinstance(source, str | Path | TrainingInput | FileSystemInput):
                source = TrainingInput(
                    str(read_attribute(source, "s3_uri") or ""),
                    distribution=read_attribute(source, "s3_data_distribution_type"),
                )
            found[one.channel_name] = source
        return found or None

    def _wishes(self) -> JobSpec:
        for name, why in _REFUSED.items():
            if getattr(self, name) is not None:
                raise _refused(f"ModelTrainer({name}=...)", why, f"leave {name} out")
        code = of_kind("source_code", self.source_code, SourceCode)
        limit = self.stopping_condition
        values = {
            **_code_values(code),
            **self._compute_values(),
            **self._output_values(),
            **_launch_values(self.distributed),
            **_limit_values(of_kind("stopping_condition", limit, StoppingCondition)),
            "role": self.role,
            # SageMaker's names have no underscore; v3 replaces it too.
            "base_job_name": self._base_name(),
            "image_uri": self.training_image,
            "sagemaker_session": self.sagemaker_session,
            "input_mode": self.training_input_mode,
            "environment": self.environment,
            "hyperparameters": _hyperparameters(self.hyperparameters),
            "tags": self.tags,
            "engine": self.engine,
            "engine_options": self.engine_options,
            "raise_on_timeout": self.raise_on_timeout,
            "model_channel_name": "model",
            **self._added,
        }
        notices = on_engine_of(self.around().environ, values)
        spec = with_notices(wishes_of("ModelTrainer", values, ENGINES, profile="v3"), notices)
        if limit is not None:
            return spec
        said = f"no stopping_condition: the job is stopped after {DEFAULT_RUN_SECONDS} s, ModelTrainer's default (SDK v2: 86400 s)"
        return with_notices(spec, [said])

    def _compute_values(self) -> dict[str, Any]:
        compute = self.compute
        if compute is None and self.engine is not None:
            compute = Compute(instance_type=None)
        compute = of_kind("compute", compute, Compute)
        mode = str(getattr(self.training_mode, "value", self.training_mode))
        if mode not in ("SAGEMAKER_TRAINING_JOB", "LOCAL_CONTAINER"):
            raise UsageError(
                "U01",
                f"training_mode {mode} is none",
                saw="SAGEMAKER_TRAINING_JOB or LOCAL_CONTAINER",
                next="training_mode='LOCAL_CONTAINER'",
            )
        kind = "local" if compute.instance_type == "local_cpu" else compute.instance_type
        if mode == "LOCAL_CONTAINER" and kind not in ("local", "local_gpu"):
            kind = "local"
        groups = compute.instance_groups
        return {
            "instance_type": None if groups else kind,
            "instance_count": None if groups else compute.instance_count,
            "instance_groups": groups,
            "volume_size": compute.volume_size_in_gb,
            "volume_kms_key": compute.volume_kms_key_id,
            "keep_alive_period_in_seconds": compute.keep_alive_period_in_seconds,
            "training_plan": compute.training_plan_arn,
            "instance_placement_config": compute.instance_placement_config,
            "use_spot_instances": bool(compute.enable_managed_spot_training),
        }

    def _output_values(self) -> dict[str, Any]:
        output = of_kind("output_data_config", self.output_data_config, OutputDataConfig)
        kept = of_kind("checkpoint_config", self.checkpoint_config, CheckpointConfig)
        network = of_kind("networking", self.networking, Networking)
        return {
            "output_path": output.s3_output_path,
            "output_kms_key": output.kms_key_id,
            "disable_output_compression": output.compression_type == "NONE",
            "checkpoint_s3_uri": kept.s3_uri,
            "checkpoint_local_path": kept.local_path,
            "subnets": network.subnets,
            "security_group_ids": network.security_group_ids,
            "enable_network_isolation": bool(network.enable_network_isolation),
            "encrypt_inter_container_traffic": bool(network.enable_inter_container_traffic_encryption),
        }


def _code_values(code: SourceCode) -> dict[str, Any]:
    if code.command is not None and code.entry_script is not None:
        raise UsageError(
            "U01",
            "entry_script and command both say what runs",
            saw=f"entry_script={code.entry_script!r}, command={shown(code.command)}",
            next="SourceCode(entry_script='train.py')",
        )
    if code.requirements not in (None, "auto", "requirements.txt", "./requirements.txt"):
        raise _refused(
            f"SourceCode(requirements={code.requirements!r})",
            "requirements.txt of source_dir is what hosts install",
            "rename the file to requirements.txt",
        )
    arguments = shlex.split(code.args) if isinstance(code.args, str) else [str(word) for word in code.args or ()]
    return {
        "entry_point": COMMAND_FILE if code.command is not None else code.entry_script,
        "command": code.command,
        "source_dir": code.source_dir,
        "script_arguments": tuple(arguments),
        "ignore_patterns": tuple(code.ignore_patterns),
    }


def _launch_values(distributed: object) -> dict[str, Any]:
    if distributed is None:
        return {}
    if isinstance(distributed, Torchrun):
        if distributed.smp is not None:
            raise _refused(
                "Torchrun(smp=...)", "the library for model parallelism is closed", "FSDP of torch, in the script"
            )
        return {
            "distribution": {"torch_distributed": {"enabled": True}},
            "processes_per_instance": distributed.process_count_per_node,
        }
    if isinstance(distributed, MPI):
        form: dict[str, Any] = {
            "enabled": True,
            "custom_mpi_options": shlex.join(distributed.mpi_additional_options or ()),
        }
        if distributed.process_count_per_node is not None:
            form["processes_per_host"] = distributed.process_count_per_node
        return {"distribution": {"mpi": form}}
    saw = f"{type(distributed).__name__}; smdistributed has no class in v3"
    raise UsageError("U01", "distributed is a Torchrun or an MPI", saw=saw, next="distributed=Torchrun()")


def _limit_values(limit: StoppingCondition) -> dict[str, Any]:
    return {
        "max_run": limit.max_runtime_in_seconds or DEFAULT_RUN_SECONDS,
        "max_wait": limit.max_wait_time_in_seconds,
        "max_pending": limit.max_pending_time_in_seconds,
    }


def _hyperparameters(value: object) -> Any:
    """The dict, or the content of the JSON or YAML file that the value names."""
    if not isinstance(value, str | Path):
        return value
    path = Path(value)
    is_yaml = path.suffix in (".yaml", ".yml")
    try:
        text = path.read_text(encoding="utf-8")
        return _yaml(path, text) if is_yaml else json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(
            "U07",
            f"hyperparameters: {path} cannot be read",
            saw=str(error),
            next=f"correct {path}" if is_yaml else f"python -m json.tool {path}",
        ) from error


def _yaml(path: Path, text: str) -> Any:
    """Raises:  UsageError U07: PyYAML is not installed; ValueError: it is not YAML"""
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise UsageError(
            "U07",
            "hyperparameters in YAML need PyYAML",
            saw=str(path),
            next=f"pip install pyyaml, or write {path.with_suffix('.json')}",
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _switch(config: object, name: str) -> bool:
    value = read_attribute(config, name)
    return value if isinstance(value, bool) else True


def _refused(what: str, why: str, next: str) -> UsageError:
    return UsageError("U32", f"{what} cannot be done here: {why}", saw=what, next=next)
