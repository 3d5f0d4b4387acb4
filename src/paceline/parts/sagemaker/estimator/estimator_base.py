"""The common base of Estimator, PyTorch and TensorFlow: the methods of SDK v2's estimators, over any engine."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, ParamSpec, Self

from paceline.errors import UsageError
from paceline.parts.engines import jobs
from paceline.parts.engines.base import ENGINES, Request
from paceline.parts.sagemaker.estimator import console
from paceline.parts.sagemaker.estimator.arguments import V1_NAMES, accepted, arguments_of, shown, unknown_name
from paceline.parts.sagemaker.estimator.describe import model_address
from paceline.parts.sagemaker.estimator.instances import on_engine_of
from paceline.parts.sagemaker.estimator.job import JobSpec, new_job_name, wishes_of, with_notices
from paceline.parts.sagemaker.estimator.limits import check_job_name
from paceline.parts.sagemaker.estimator.session import Surroundings, surroundings
from paceline.parts.sagemaker.estimator.submit import not_fitted, planned, submit
from paceline.parts.sagemaker.estimator.training_job import TrainingJob, TrainingJobAnalytics, find_job, shows_output
from paceline.spelling import nearest

_Declared = ParamSpec("_Declared")


class EstimatorBase:
    """The common base of the estimators. Every argument is also an attribute, except `hyperparameters`, which is a method as in v2."""

    around: Callable[[], Surroundings] = staticmethod(surroundings)
    # The class in the table of arguments. A user's subclass inherits it, and so has the arguments of its base class.
    _class_name: ClassVar[str]

    def __init__(self, given: Mapping[str, Any]) -> None:
        values, notices = accepted(self._class_name, given)
        self._hyperparameters: Any = values.pop("hyperparameters")
        self.latest_training_job: TrainingJob | None = None
        for name, value in values.items():
            setattr(self, name, value)
        self._wishes()
        console.notices(notices)

    def __setattr__(self, name: str, value: object) -> None:
        rows = arguments_of(self._class_name)
        theirs = name.startswith("_") or hasattr(type(self), name)
        if name in V1_NAMES or (name not in rows and not theirs and nearest(name, rows, 0.85)):
            raise unknown_name(self._class_name, name, rows)
        super().__setattr__(name, value)

    def fit(
        self,
        inputs: object = None,
        wait: bool = True,
        logs: object = "All",
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> None:
        """Check everything, submit the job and, with `wait`, print its status and output until it ends.

        Raises:  UsageError: refused before anything was sent; UnexpectedStatusException, CapacityError, TrainingTimeout: the job failed
        """
        shows_output(logs)
        spec, name = self._wishes(), self._job_name(job_name)
        more = self._experiment(spec, experiment_config)
        self.latest_training_job = submit(spec, inputs, name, self.around(), more)
        if wait:
            self.latest_training_job.wait(logs)

    def plan(self, inputs: object = None, job_name: str | None = None) -> Request:
        """The request that fit() would send to the engine. Nothing is sent. This method is paceline's own, not v2's."""
        return planned(self._wishes(), inputs, self._job_name(job_name), self.around())

    @classmethod
    def attach(cls, training_job_name: str, sagemaker_session: object = None) -> Self:
        """An estimator whose latest job is the given job, found by its name or its run id.

        Raises:  UsageError U09: no such job
        """
        job = find_job(training_job_name, surroundings())
        made = cls.__new__(cls)
        found = jobs.submitted(job.run_dir)
        assert found is not None
        rows = arguments_of(made._class_name)
        for name, row in rows.items():
            if name != "hyperparameters":
                setattr(made, name, row.default)
        submitted = found.job
        ranks = submitted.ranks_per_host
        made._hyperparameters = {
            key: one for key, one in submitted.hyperparameters.items() if not key.startswith("sagemaker_")
        }
        restored = {
            "entry_point": submitted.program.target,
            "source_dir": submitted.package.directory if submitted.package else None,
            "instance_count": submitted.hosts,
            "instance_type": submitted.platform.get("ResourceConfig", {}).get("InstanceType"),
            "engine": found.engine,
            "engine_options": dict(submitted.engine_options),
            "processes_per_instance": int(ranks) if ranks.isdigit() else ranks,
            "max_run": submitted.max_run_seconds,
            "output_path": submitted.output_url,
            "checkpoint_s3_uri": submitted.checkpoint_url,
            "metric_definitions": submitted.platform.get("AlgorithmSpecification", {}).get("MetricDefinitions"),
        }
        for name, value in restored.items():
            setattr(made, name, value)
        made.latest_training_job = job
        return made

    def stop(self, *, now: bool = False) -> None:
        """End the latest job; see TrainingJob.stop."""
        self._job().stop(now=now)

    def describe(self) -> dict[str, Any]:
        """The latest job in the shape of DescribeTrainingJob's answer."""
        return self._job().describe()

    def logs(self) -> None:
        """Print the latest job's output so far, and then follow it until the job ends."""
        self._job().logs()

    def wait(self, logs: object = "All") -> None:
        """Wait for the latest job, as fit() does.

        Raises:  UnexpectedStatusException, CapacityError, TrainingTimeout: the job failed
        """
        self._job().wait(logs)

    def metrics(self) -> list[dict[str, Any]]:
        """The values that metric_definitions found in the latest job's output."""
        return self._job().metrics()

    @property
    def training_job_analytics(self) -> TrainingJobAnalytics:
        """The metrics of the latest job, in the class that v2 returns."""
        return TrainingJobAnalytics(self._job())

    @property
    def model_data(self) -> str:
        """The location of the latest job's model, also before the job has ended."""
        job = self._job()
        found = jobs.submitted(job.run_dir)
        if found is None:
            raise not_fitted()
        return model_address(found, job.run_dir)

    def hyperparameters(self) -> dict[str, Any]:
        """The script's hyperparameters as they were given. docs/contract.md says how they are encoded."""
        return dict(self._hyperparameters or {})

    def set_hyperparameters(self, **values: Any) -> None:
        """Add or change hyperparameters.

        Raises:  UsageError U07: a hyperparameter that cannot be passed to a script
        """
        before = self._hyperparameters
        self._hyperparameters = {**(before or {}), **values}
        try:
            self._wishes()
        except UsageError:
            self._hyperparameters = before
            raise

    def _wishes(self) -> JobSpec:
        values = {name: getattr(self, name) for name in arguments_of(self._class_name) if name != "hyperparameters"}
        values["hyperparameters"] = self._hyperparameters
        notices = on_engine_of(self.around().environ, values)
        return with_notices(wishes_of(self._class_name, values, ENGINES), notices)

    def _job(self) -> TrainingJob:
        if self.latest_training_job is None:
            raise not_fitted()
        return self.latest_training_job

    def _job_name(self, name: str | None) -> str:
        if name is not None:
            return check_job_name(name)
        base = getattr(self, "base_job_name", None)
        return new_job_name(base or f"{self._class_name.lower()}-training", self.around().now_ns())

    def _experiment(self, spec: JobSpec, value: Mapping[str, str] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise UsageError(
                "U31",
                "experiment_config is a dict",
                saw=shown(value),
                next="experiment_config={'ExperimentName': '...'}",
            )
        if not spec.machines.on_sagemaker:
            console.notices(["without meaning off SageMaker, left aside: experiment_config"])
        return {"experiment_config": dict(value)}


def with_declared_arguments(declared: Callable[_Declared, None]) -> Callable[_Declared, None]:
    """An `__init__` with the signature of `declared` that passes on only the arguments that the caller wrote, without defaults.

    An argument that the caller wrote conflicts with the same argument under its v1 name; a default does not. Names that are not
    declared are passed on too: `accepted` takes v1's names and refuses all others with the nearest spelling.
    """
    signature = inspect.signature(declared)

    @functools.wraps(declared)
    def initialize(self: EstimatorBase, *positional: Any, **named: Any) -> None:
        known = {name: value for name, value in named.items() if name in signature.parameters}
        by_name = signature.bind(self, *positional, **known).arguments
        del by_name["self"]
        EstimatorBase.__init__(self, {**by_name, **named})

    return initialize  # type: ignore[return-value]
