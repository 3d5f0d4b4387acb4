"""Estimator, PyTorch and TensorFlow with the names, defaults and meaning of the SageMaker SDK's v2, over any engine.

Made by `make docs` from the table in arguments.py, by write_estimators.py. Change the table, not this file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.parts.sagemaker.estimator.estimator_base import EstimatorBase, with_declared_arguments
from paceline.parts.sagemaker.estimator.inputs import TrainingInput
from paceline.parts.sagemaker.estimator.instances import InstanceGroup


class SharedArguments(EstimatorBase):
    """The arguments that every estimator has, as attributes. `hyperparameters` is a method, as in v2."""

    entry_point: str | Path | None
    source_dir: str | Path | None
    dependencies: Sequence[str | Path] | None
    git_config: Mapping[str, Any] | None
    role: str | None
    instance_count: int | None
    instance_type: str | None
    instance_groups: Sequence[InstanceGroup] | None
    keep_alive_period_in_seconds: int | None
    volume_size: int | None
    volume_kms_key: str | None
    output_kms_key: str | None
    encrypt_inter_container_traffic: bool
    enable_network_isolation: bool
    max_run: float
    max_wait: float | None
    use_spot_instances: bool
    max_retry_attempts: int | None
    input_mode: str
    output_path: str | Path | None
    base_job_name: str | None
    code_location: str | None
    tags: Sequence[Mapping[str, str]] | Mapping[str, str] | None
    subnets: Sequence[str] | None
    security_group_ids: Sequence[str] | None
    model_uri: str | Path | TrainingInput | None
    model_channel_name: str
    metric_definitions: Sequence[Mapping[str, str]] | None
    checkpoint_s3_uri: str | Path | None
    checkpoint_local_path: str | None
    environment: Mapping[str, str] | None
    container_log_level: int | None
    image_uri: str | None
    image_uri_region: str | None
    sagemaker_session: Any
    debugger_hook_config: Any
    rules: Any
    tensorboard_output_config: Any
    profiler_config: Any
    disable_profiler: bool | None
    enable_sagemaker_metrics: bool | None
    disable_output_compression: bool
    enable_infra_check: bool | None
    enable_remote_debug: bool | None
    enable_session_tag_chaining: bool | None
    training_plan: str | None
    instance_placement_config: Any
    training_repository_access_mode: str | None
    training_repository_credentials_provider_arn: str | None
    container_entry_point: None
    container_arguments: None
    algorithm_arn: None
    engine: str | None
    engine_options: Mapping[str, Any] | None
    processes_per_instance: int | str | None
    planner: Mapping[str, Any] | None
    raise_on_timeout: bool


class Estimator(SharedArguments):
    """SDK v2's generic estimator: a script on hosts, started once on each."""

    _class_name = "Estimator"

    @with_declared_arguments
    def __init__(
        self,
        image_uri: str | None = None,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        *,
        entry_point: str | Path | None = None,
        source_dir: str | Path | None = None,
        dependencies: Sequence[str | Path] | None = None,
        git_config: Mapping[str, Any] | None = None,
        instance_groups: Sequence[InstanceGroup] | None = None,
        keep_alive_period_in_seconds: int | None = None,
        volume_size: int | None = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        encrypt_inter_container_traffic: bool = False,
        enable_network_isolation: bool = False,
        max_run: float = 86400,
        max_wait: float | None = None,
        use_spot_instances: bool = False,
        max_retry_attempts: int | None = None,
        input_mode: str = "File",
        output_path: str | Path | None = None,
        base_job_name: str | None = None,
        code_location: str | None = None,
        tags: Sequence[Mapping[str, str]] | Mapping[str, str] | None = None,
        subnets: Sequence[str] | None = None,
        security_group_ids: Sequence[str] | None = None,
        model_uri: str | Path | TrainingInput | None = None,
        model_channel_name: str = "model",
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        checkpoint_s3_uri: str | Path | None = None,
        checkpoint_local_path: str | None = None,
        environment: Mapping[str, str] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        container_log_level: int | None = 20,
        image_uri_region: str | None = None,
        sagemaker_session: Any = None,
        debugger_hook_config: Any = None,
        rules: Any = None,
        tensorboard_output_config: Any = None,
        profiler_config: Any = None,
        disable_profiler: bool | None = None,
        enable_sagemaker_metrics: bool | None = None,
        disable_output_compression: bool = False,
        enable_infra_check: bool | None = None,
        enable_remote_debug: bool | None = None,
        enable_session_tag_chaining: bool | None = None,
        training_plan: str | None = None,
        instance_placement_config: Any = None,
        training_repository_access_mode: str | None = None,
        training_repository_credentials_provider_arn: str | None = None,
        container_entry_point: None = None,
        container_arguments: None = None,
        algorithm_arn: None = None,
        engine: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
        processes_per_instance: int | str | None = None,
        planner: Mapping[str, Any] | None = None,
        raise_on_timeout: bool = True,
    ) -> None:
        """Every argument is given by name; those before the star also by position.

        Args:
            image_uri: the container; elsewhere the Python that runs paceline on the host is used
            role: the IAM role of the job
            instance_count: number of hosts
            instance_type: local, local_gpu, an ml. type, or with engine= the type of its machines
            entry_point: the script that every rank runs: a .py or .sh file, relative to source_dir
            source_dir: the directory that is shipped; its requirements.txt is installed on every host
            dependencies: directories and files that are laid beside the script
            git_config: repo, branch, commit: entry_point, source_dir and dependencies lie in that repository
            instance_groups: a heterogeneous cluster of at most 5 groups; elsewhere refused
            keep_alive_period_in_seconds: a warm pool: the machines are kept for the next job
            volume_size: scratch disk in GB
            volume_kms_key: key of the scratch disk
            output_kms_key: key of the output
            encrypt_inter_container_traffic: encrypts what hosts exchange; slows all_reduce down
            enable_network_isolation: containers without a network of their own
            max_run: seconds from the start of training; then SIGTERM to every rank, 120 s, SIGKILL
            max_wait: spot: seconds in all, waiting included; at least max_run
            use_spot_instances: spare capacity: the job is interrupted and started again from its checkpoints
            max_retry_attempts: 1 to 30: the job is started again after a lost host, never after the script's own failure
            input_mode: File; FastFile and Pipe become File off SageMaker, with a notice
            output_path: directory or URL for model.tar.gz and output.tar.gz
            base_job_name: the job's name is this and the time
            code_location: prefix in S3 for the code
            tags: tags of the job
            subnets: with security_group_ids: the VPC of the job
            security_group_ids: with subnets
            model_uri: a pre-trained model as an input channel
            model_channel_name: name of that channel
            metric_definitions: Name and Regex of what is read from the logs, at most 40
            checkpoint_s3_uri: directory or URL that the checkpoints directory is kept in step with
            checkpoint_local_path: another checkpoints directory than /opt/ml/checkpoints
            environment: variables of every rank, at most 100; values are never shown
            hyperparameters: the script's arguments, SM_HP_* and hyperparameters.json, at most 100
            container_log_level: SM_LOG_LEVEL of the script
            image_uri_region: region of the container image
            sagemaker_session: the engine makes its own boto3 client: engine_options={'region': ...}
            debugger_hook_config: paceline's own recording takes its place: paceline top, why, plan
            rules: paceline's own recording takes its place: paceline top, why, plan
            tensorboard_output_config: let the script write below SM_OUTPUT_DATA_DIR
            profiler_config: paceline's own recording takes its place: paceline top, why, plan
            disable_profiler: paceline's own recording takes its place: paceline top, why, plan
            enable_sagemaker_metrics: time series of metric_definitions in SageMaker's own store
            disable_output_compression: output without tar.gz
            enable_infra_check: the service's check of its machines
            enable_remote_debug: a shell into the container through SSM
            enable_session_tag_chaining: tags of the session for the role
            training_plan: reserved capacity
            instance_placement_config: where UltraServer machines are placed
            training_repository_access_mode: Platform or Vpc: where the image lies
            training_repository_credentials_provider_arn: who opens that registry
            container_entry_point: paceline's agent is what a host starts, and it starts entry_point
            container_arguments: paceline's agent is what a host starts, and it starts entry_point
            algorithm_arn: an algorithm of the marketplace is a closed container; paceline runs scripts
            engine: ours: local, ssh, ray, slurm or sagemaker, where instance_type does not say it
            engine_options: ours: what this engine alone understands, such as {'hosts': 'a,b'}
            processes_per_instance: ours: ranks on each host, a number, 'gpu', 'cpu' or 'auto'
            planner: ours: {'trace': file, 'steps': N}; the planner's memory and time are checked too
            raise_on_timeout: ours: False lets fit() return after max_run, as v2 does
        """


class PyTorch(SharedArguments):
    """SDK v2's estimator for PyTorch: `distribution` says how the ranks of a script start.

    >>> PyTorch("train.py", source_dir="src", instance_type="local", instance_count=2).fit("data")  # doctest: +SKIP
    """

    _class_name = "PyTorch"
    distribution: Mapping[str, Any] | None
    framework_version: str | None
    py_version: str | None
    compiler_config: None
    training_recipe: None
    recipe_overrides: None

    @with_declared_arguments
    def __init__(
        self,
        entry_point: str | Path | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
        source_dir: str | Path | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        distribution: Mapping[str, Any] | None = None,
        *,
        dependencies: Sequence[str | Path] | None = None,
        git_config: Mapping[str, Any] | None = None,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        instance_groups: Sequence[InstanceGroup] | None = None,
        keep_alive_period_in_seconds: int | None = None,
        volume_size: int | None = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        encrypt_inter_container_traffic: bool = False,
        enable_network_isolation: bool = False,
        max_run: float = 86400,
        max_wait: float | None = None,
        use_spot_instances: bool = False,
        max_retry_attempts: int | None = None,
        input_mode: str = "File",
        output_path: str | Path | None = None,
        base_job_name: str | None = None,
        code_location: str | None = None,
        tags: Sequence[Mapping[str, str]] | Mapping[str, str] | None = None,
        subnets: Sequence[str] | None = None,
        security_group_ids: Sequence[str] | None = None,
        model_uri: str | Path | TrainingInput | None = None,
        model_channel_name: str = "model",
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        checkpoint_s3_uri: str | Path | None = None,
        checkpoint_local_path: str | None = None,
        environment: Mapping[str, str] | None = None,
        container_log_level: int | None = 20,
        image_uri_region: str | None = None,
        sagemaker_session: Any = None,
        debugger_hook_config: Any = None,
        rules: Any = None,
        tensorboard_output_config: Any = None,
        profiler_config: Any = None,
        disable_profiler: bool | None = None,
        enable_sagemaker_metrics: bool | None = None,
        disable_output_compression: bool = False,
        enable_infra_check: bool | None = None,
        enable_remote_debug: bool | None = None,
        enable_session_tag_chaining: bool | None = None,
        training_plan: str | None = None,
        instance_placement_config: Any = None,
        training_repository_access_mode: str | None = None,
        training_repository_credentials_provider_arn: str | None = None,
        container_entry_point: None = None,
        container_arguments: None = None,
        algorithm_arn: None = None,
        compiler_config: None = None,
        training_recipe: None = None,
        recipe_overrides: None = None,
        engine: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
        processes_per_instance: int | str | None = None,
        planner: Mapping[str, Any] | None = None,
        raise_on_timeout: bool = True,
    ) -> None:
        """Every argument is given by name; those before the star also by position.

        Args:
            entry_point: the script that every rank runs: a .py or .sh file, relative to source_dir
            framework_version: chooses the image; elsewhere what is installed is used, and a difference is said
            py_version: chooses the image
            source_dir: the directory that is shipped; its requirements.txt is installed on every host
            hyperparameters: the script's arguments, SM_HP_* and hyperparameters.json, at most 100
            image_uri: the container; elsewhere the Python that runs paceline on the host is used
            distribution: how ranks are started; see docs/estimator.md
            dependencies: directories and files that are laid beside the script
            git_config: repo, branch, commit: entry_point, source_dir and dependencies lie in that repository
            role: the IAM role of the job
            instance_count: number of hosts
            instance_type: local, local_gpu, an ml. type, or with engine= the type of its machines
            instance_groups: a heterogeneous cluster of at most 5 groups; elsewhere refused
            keep_alive_period_in_seconds: a warm pool: the machines are kept for the next job
            volume_size: scratch disk in GB
            volume_kms_key: key of the scratch disk
            output_kms_key: key of the output
            encrypt_inter_container_traffic: encrypts what hosts exchange; slows all_reduce down
            enable_network_isolation: containers without a network of their own
            max_run: seconds from the start of training; then SIGTERM to every rank, 120 s, SIGKILL
            max_wait: spot: seconds in all, waiting included; at least max_run
            use_spot_instances: spare capacity: the job is interrupted and started again from its checkpoints
            max_retry_attempts: 1 to 30: the job is started again after a lost host, never after the script's own failure
            input_mode: File; FastFile and Pipe become File off SageMaker, with a notice
            output_path: directory or URL for model.tar.gz and output.tar.gz
            base_job_name: the job's name is this and the time
            code_location: prefix in S3 for the code
            tags: tags of the job
            subnets: with security_group_ids: the VPC of the job
            security_group_ids: with subnets
            model_uri: a pre-trained model as an input channel
            model_channel_name: name of that channel
            metric_definitions: Name and Regex of what is read from the logs, at most 40
            checkpoint_s3_uri: directory or URL that the checkpoints directory is kept in step with
            checkpoint_local_path: another checkpoints directory than /opt/ml/checkpoints
            environment: variables of every rank, at most 100; values are never shown
            container_log_level: SM_LOG_LEVEL of the script
            image_uri_region: region of the container image
            sagemaker_session: the engine makes its own boto3 client: engine_options={'region': ...}
            debugger_hook_config: paceline's own recording takes its place: paceline top, why, plan
            rules: paceline's own recording takes its place: paceline top, why, plan
            tensorboard_output_config: let the script write below SM_OUTPUT_DATA_DIR
            profiler_config: paceline's own recording takes its place: paceline top, why, plan
            disable_profiler: paceline's own recording takes its place: paceline top, why, plan
            enable_sagemaker_metrics: time series of metric_definitions in SageMaker's own store
            disable_output_compression: output without tar.gz
            enable_infra_check: the service's check of its machines
            enable_remote_debug: a shell into the container through SSM
            enable_session_tag_chaining: tags of the session for the role
            training_plan: reserved capacity
            instance_placement_config: where UltraServer machines are placed
            training_repository_access_mode: Platform or Vpc: where the image lies
            training_repository_credentials_provider_arn: who opens that registry
            container_entry_point: paceline's agent is what a host starts, and it starts entry_point
            container_arguments: paceline's agent is what a host starts, and it starts entry_point
            algorithm_arn: an algorithm of the marketplace is a closed container; paceline runs scripts
            compiler_config: the Training Compiler was withdrawn; call torch.compile in the script
            training_recipe: recipes are containers and scripts of HyperPod; name the script as entry_point
            recipe_overrides: belongs to training_recipe
            engine: ours: local, ssh, ray, slurm or sagemaker, where instance_type does not say it
            engine_options: ours: what this engine alone understands, such as {'hosts': 'a,b'}
            processes_per_instance: ours: ranks on each host, a number, 'gpu', 'cpu' or 'auto'
            planner: ours: {'trace': file, 'steps': N}; the planner's memory and time are checked too
            raise_on_timeout: ours: False lets fit() return after max_run, as v2 does
        """


class TensorFlow(SharedArguments):
    """SDK v2's estimator for TensorFlow: one process on each host, which finds the others in TF_CONFIG."""

    _class_name = "TensorFlow"
    distribution: Mapping[str, Any] | None
    framework_version: str | None
    py_version: str | None
    compiler_config: None
    model_dir: str | Path | bool | None

    @with_declared_arguments
    def __init__(
        self,
        py_version: str | None = None,
        framework_version: str | None = None,
        model_dir: str | Path | bool | None = None,
        image_uri: str | None = None,
        distribution: Mapping[str, Any] | None = None,
        *,
        entry_point: str | Path | None = None,
        source_dir: str | Path | None = None,
        dependencies: Sequence[str | Path] | None = None,
        git_config: Mapping[str, Any] | None = None,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        instance_groups: Sequence[InstanceGroup] | None = None,
        keep_alive_period_in_seconds: int | None = None,
        volume_size: int | None = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        encrypt_inter_container_traffic: bool = False,
        enable_network_isolation: bool = False,
        max_run: float = 86400,
        max_wait: float | None = None,
        use_spot_instances: bool = False,
        max_retry_attempts: int | None = None,
        input_mode: str = "File",
        output_path: str | Path | None = None,
        base_job_name: str | None = None,
        code_location: str | None = None,
        tags: Sequence[Mapping[str, str]] | Mapping[str, str] | None = None,
        subnets: Sequence[str] | None = None,
        security_group_ids: Sequence[str] | None = None,
        model_uri: str | Path | TrainingInput | None = None,
        model_channel_name: str = "model",
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        checkpoint_s3_uri: str | Path | None = None,
        checkpoint_local_path: str | None = None,
        environment: Mapping[str, str] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        container_log_level: int | None = 20,
        image_uri_region: str | None = None,
        sagemaker_session: Any = None,
        debugger_hook_config: Any = None,
        rules: Any = None,
        tensorboard_output_config: Any = None,
        profiler_config: Any = None,
        disable_profiler: bool | None = None,
        enable_sagemaker_metrics: bool | None = None,
        disable_output_compression: bool = False,
        enable_infra_check: bool | None = None,
        enable_remote_debug: bool | None = None,
        enable_session_tag_chaining: bool | None = None,
        training_plan: str | None = None,
        instance_placement_config: Any = None,
        training_repository_access_mode: str | None = None,
        training_repository_credentials_provider_arn: str | None = None,
        container_entry_point: None = None,
        container_arguments: None = None,
        algorithm_arn: None = None,
        compiler_config: None = None,
        engine: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
        processes_per_instance: int | str | None = None,
        planner: Mapping[str, Any] | None = None,
        raise_on_timeout: bool = True,
    ) -> None:
        """Every argument is given by name; those before the star also by position.

        Args:
            py_version: chooses the image
            framework_version: chooses the image; elsewhere what is installed is used, and a difference is said
            model_dir: passed to the script as --model_dir; False: not passed
            image_uri: the container; elsewhere the Python that runs paceline on the host is used
            distribution: how ranks are started; see docs/estimator.md
            entry_point: the script that every rank runs: a .py or .sh file, relative to source_dir
            source_dir: the directory that is shipped; its requirements.txt is installed on every host
            dependencies: directories and files that are laid beside the script
            git_config: repo, branch, commit: entry_point, source_dir and dependencies lie in that repository
            role: the IAM role of the job
            instance_count: number of hosts
            instance_type: local, local_gpu, an ml. type, or with engine= the type of its machines
            instance_groups: a heterogeneous cluster of at most 5 groups; elsewhere refused
            keep_alive_period_in_seconds: a warm pool: the machines are kept for the next job
            volume_size: scratch disk in GB
            volume_kms_key: key of the scratch disk
            output_kms_key: key of the output
            encrypt_inter_container_traffic: encrypts what hosts exchange; slows all_reduce down
            enable_network_isolation: containers without a network of their own
            max_run: seconds from the start of training; then SIGTERM to every rank, 120 s, SIGKILL
            max_wait: spot: seconds in all, waiting included; at least max_run
            use_spot_instances: spare capacity: the job is interrupted and started again from its checkpoints
            max_retry_attempts: 1 to 30: the job is started again after a lost host, never after the script's own failure
            input_mode: File; FastFile and Pipe become File off SageMaker, with a notice
            output_path: directory or URL for model.tar.gz and output.tar.gz
            base_job_name: the job's name is this and the time
            code_location: prefix in S3 for the code
            tags: tags of the job
            subnets: with security_group_ids: the VPC of the job
            security_group_ids: with subnets
            model_uri: a pre-trained model as an input channel
            model_channel_name: name of that channel
            metric_definitions: Name and Regex of what is read from the logs, at most 40
            checkpoint_s3_uri: directory or URL that the checkpoints directory is kept in step with
            checkpoint_local_path: another checkpoints directory than /opt/ml/checkpoints
            environment: variables of every rank, at most 100; values are never shown
            hyperparameters: the script's arguments, SM_HP_* and hyperparameters.json, at most 100
            container_log_level: SM_LOG_LEVEL of the script
            image_uri_region: region of the container image
            sagemaker_session: the engine makes its own boto3 client: engine_options={'region': ...}
            debugger_hook_config: paceline's own recording takes its place: paceline top, why, plan
            rules: paceline's own recording takes its place: paceline top, why, plan
            tensorboard_output_config: let the script write below SM_OUTPUT_DATA_DIR
            profiler_config: paceline's own recording takes its place: paceline top, why, plan
            disable_profiler: paceline's own recording takes its place: paceline top, why, plan
            enable_sagemaker_metrics: time series of metric_definitions in SageMaker's own store
            disable_output_compression: output without tar.gz
            enable_infra_check: the service's check of its machines
            enable_remote_debug: a shell into the container through SSM
            enable_session_tag_chaining: tags of the session for the role
            training_plan: reserved capacity
            instance_placement_config: where UltraServer machines are placed
            training_repository_access_mode: Platform or Vpc: where the image lies
            training_repository_credentials_provider_arn: who opens that registry
            container_entry_point: paceline's agent is what a host starts, and it starts entry_point
            container_arguments: paceline's agent is what a host starts, and it starts entry_point
            algorithm_arn: an algorithm of the marketplace is a closed container; paceline runs scripts
            compiler_config: the Training Compiler was withdrawn; call torch.compile in the script
            engine: ours: local, ssh, ray, slurm or sagemaker, where instance_type does not say it
            engine_options: ours: what this engine alone understands, such as {'hosts': 'a,b'}
            processes_per_instance: ours: ranks on each host, a number, 'gpu', 'cpu' or 'auto'
            planner: ours: {'trace': file, 'steps': N}; the planner's memory and time are checked too
            raise_on_timeout: ours: False lets fit() return after max_run, as v2 does
        """
