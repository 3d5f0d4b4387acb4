"""Estimator, PyTorch and TensorFlow with the names, defaults and meaning of the SageMaker SDK's v2, over any engine."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from paceline.errors import UsageError
from paceline.estimator import console
from paceline.estimator.arguments import V1_NAMES, accepted, arguments_of, nearest, shown, unknown_name
from paceline.estimator.describe import model_address
from paceline.estimator.exceptions import explained
from paceline.estimator.job import JobSpec, new_job_name, wishes_of
from paceline.estimator.limits import check_job_name
from paceline.estimator.session import Session, surroundings
from paceline.estimator.submit import not_fitted, planned, submit
from paceline.estimator.training_job import TrainingJob, TrainingJobAnalytics, find_job, shows_output
from paceline.launch.engines import jobs
from paceline.launch.engines.base import ENGINES, Request


class EstimatorBase:
    """What the estimators share. Every argument is an attribute too, except `hyperparameters`, which is a method as in v2."""

    around: Callable[[], Session] = staticmethod(surroundings)

    @explained
    def __init__(self, given: Mapping[str, Any]) -> None:
        values, notices = accepted(self._class_name, given)
        self._hyperparameters: Any = values.pop("hyperparameters")
        self.latest_training_job: TrainingJob | None = None
        for name, value in values.items():
            setattr(self, name, value)
        self._wishes()
        console.notices(notices)

    @explained
    def __setattr__(self, name: str, value: object) -> None:
        rows = arguments_of(self._class_name)
        theirs = name.startswith("_") or hasattr(type(self), name)
        if name in V1_NAMES or (name not in rows and not theirs and nearest(name, rows, 0.85)):
            raise unknown_name(self._class_name, name, rows)
        super().__setattr__(name, value)

    @property
    def _class_name(self) -> str:
        # A subclass of the user's has the arguments of ours.
        return next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ == __name__)

    @explained
    def fit(
        self,
        inputs: object = None,
        wait: bool = True,
        logs: object = "All",
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> None:
        """Look at everything, submit the job and, with `wait`, print what it does until it ends.

        Raises:  UsageError: refused before anything was sent; UnexpectedStatusException, CapacityError, TrainingTimeout: how it ended
        """
        shows_output(logs)
        spec, name = self._wishes(), self._job_name(job_name)
        more = self._experiment(spec, experiment_config)
        self.latest_training_job = submit(spec, inputs, name, self.around(), more)
        if wait:
            self.latest_training_job.wait(logs)

    @explained
    def plan(self, inputs: object = None, job_name: str | None = None) -> Request:
        """What fit() would ask the engine for; nothing is sent. Ours, not in v2."""
        return planned(self._wishes(), inputs, self._job_name(job_name), self.around())

    @classmethod
    @explained
    def attach(cls, training_job_name: str, sagemaker_session: object = None) -> Self:
        """An estimator whose latest job is this one, found by its name or its run id.

        Raises:  UsageError U48: no such job
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

    @explained
    def stop(self, *, now: bool = False) -> None:
        """End the latest job; see TrainingJob.stop."""
        self._job().stop(now=now)

    @explained
    def describe(self) -> dict[str, Any]:
        """The latest job in the shape of DescribeTrainingJob's answer."""
        return self._job().describe()

    @explained
    def logs(self) -> None:
        """Print the latest job's output so far, and go on until it ends."""
        self._job().logs()

    @explained
    def wait(self, logs: object = "All") -> None:
        """Wait for the latest job, as fit() does.

        Raises:  UnexpectedStatusException, CapacityError, TrainingTimeout: how it ended
        """
        self._job().wait(logs)

    @explained
    def metrics(self) -> list[dict[str, Any]]:
        """What metric_definitions found in the latest job's output."""
        return self._job().metrics()

    @property
    def training_job_analytics(self) -> TrainingJobAnalytics:
        """The metrics of the latest job, as v2 offers them."""
        return TrainingJobAnalytics(self._job())

    @property
    def model_data(self) -> str:
        """Where the latest job's model is, or will be."""
        job = self._job()
        found = jobs.submitted(job.run_dir)
        if found is None:
            raise not_fitted()
        return model_address(found, job.run_dir)

    def hyperparameters(self) -> dict[str, Any]:
        """The script's hyperparameters as they were given; what they become on the way is docs/contract.md's."""
        return dict(self._hyperparameters or {})

    @explained
    def set_hyperparameters(self, **values: Any) -> None:
        """Add these, or change them.

        Raises:  UsageError U37: one that cannot be passed to a script
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
        return wishes_of(self._class_name, {**values, "hyperparameters": self._hyperparameters}, ENGINES)

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


class Estimator(EstimatorBase):
    """SDK v2's generic estimator: a script on hosts, started once on each."""

    def __init__(
        self,
        image_uri: str | None = None,
        role: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        **arguments: Any,
    ) -> None:
        given = {"image_uri": image_uri, "role": role, "instance_count": instance_count, "instance_type": instance_type}
        super().__init__({**_said(given), **arguments})


class PyTorch(EstimatorBase):
    """SDK v2's estimator for PyTorch: `distribution` says how the ranks of a script start.

    >>> PyTorch("train.py", source_dir="src", instance_type="local", instance_count=2).fit("data")  # doctest: +SKIP
    """

    def __init__(
        self,
        entry_point: str | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        distribution: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        given = {
            "entry_point": entry_point,
            "framework_version": framework_version,
            "py_version": py_version,
            "source_dir": source_dir,
            "hyperparameters": hyperparameters,
            "image_uri": image_uri,
            "distribution": distribution,
        }
        super().__init__({**_said(given), **arguments})


class TensorFlow(EstimatorBase):
    """SDK v2's estimator for TensorFlow: one process on each host, which finds the others in TF_CONFIG."""

    def __init__(
        self,
        py_version: str | None = None,
        framework_version: str | None = None,
        model_dir: str | bool | None = None,
        image_uri: str | None = None,
        distribution: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        given = {
            "py_version": py_version,
            "framework_version": framework_version,
            "model_dir": model_dir,
            "image_uri": image_uri,
            "distribution": distribution,
        }
        super().__init__({**_said(given), **arguments})


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
