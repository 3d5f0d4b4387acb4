"""A submitted job: read its status, wait for it, describe it, stop it. The run's directory is enough for all of these."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError, UsageError
from paceline.facts import Status
from paceline.part import Observation
from paceline.parts.engines import jobs
from paceline.parts.sagemaker.estimator import console
from paceline.parts.sagemaker.estimator.describe import description, model_address, training_seconds
from paceline.parts.sagemaker.estimator.failure import LIMITS, failure_of
from paceline.parts.sagemaker.estimator.metrics import metric_rows
from paceline.parts.sagemaker.estimator.session import Surroundings, surroundings
from paceline.parts.sagemaker.estimator.unused import metrics_without_value, nothing_kept
from paceline.recording.layout import SUBMISSION_FILE
from paceline.recording.runs import list_runs

POLL_SECONDS = 0.5
# Pauses after an engine did not answer: a short network failure must not end the waiting.
_PATIENCE_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
# Allowed values for fit()'s logs=. Rules and Training are SageMaker's names for parts of the output.
_SHOWN = (True, "All", "Training", "Rules")


@dataclass(frozen=True, slots=True)
class ModelArtifacts:
    """What a job leaves, in SDK v3's form."""

    s3_model_artifacts: str
    """The location of model.tar.gz, or the directory of the model on this machine."""


@dataclass(slots=True)
class TrainingJob:
    """One submitted job."""

    name: str
    """The job's name."""
    run_id: str
    """The recording's id, which `paceline why` takes."""
    run_dir: Path
    """The run's directory on this machine."""
    around: Surroundings = field(default_factory=surroundings)
    """The environment, directory and clock that the job uses."""
    raise_on_timeout: bool = True
    """With False, wait() returns after the time limit, as SDK v2 does."""

    @property
    def job_name(self) -> str:
        """The job's name, under SDK v2's attribute name."""
        return self.name

    @property
    def training_job_name(self) -> str:
        """The job's name, under SDK v3's attribute name."""
        return self.name

    @property
    def model_artifacts(self) -> ModelArtifacts:
        """The location of the job's model, in SDK v3's form."""
        return ModelArtifacts(model_address(self._submitted(), self.run_dir))

    def status(self) -> Observation:
        """The job's current state. This also updates the recording if the engine can do so."""
        return jobs.observe(self.run_dir, self.around.environ)

    def stop(self, *, now: bool = False) -> None:
        """End the job: SIGTERM to every rank, SIGKILL after the grace period; with `now`, SIGKILL at once. No effect on an ended job."""
        jobs.cancel(self.run_dir, self.around.environ, now=now)

    def describe(self) -> dict[str, Any]:
        """The job in the format of DescribeTrainingJob's answer."""
        return description(self._submitted(), self.status(), self.run_dir, self.around.now_ns())

    def wait(self, logs: object = "All") -> None:
        """Print status and output until the job ends.

        Raises:  UnexpectedStatusException: the job failed; CapacityError: there was no machine; TrainingTimeout: it reached its time limit
        """
        seen = self._follow(show_output=shows_output(logs))
        if seen.status is Status.COMPLETED:
            job = self._submitted().job
            console.notices(
                (*nothing_kept(job, self.run_dir), *metrics_without_value(self._definitions(), self.run_dir))
            )
            console.training_seconds(training_seconds(self.run_dir, self.around.now_ns()), job.hosts)
            return
        if seen.status is Status.STOPPED and not (seen.secondary_status in LIMITS and self.raise_on_timeout):
            console.notices(
                [f"{self.name} was stopped, so what it left may be incomplete: {seen.reason or 'no reason given'}"]
            )
            return
        raise failure_of(seen, self.name, self.run_id, self.run_dir)

    def logs(self) -> None:
        """Print the output so far, and then follow it until the job ends."""
        self._follow(show_output=True)

    def metrics(self) -> list[dict[str, Any]]:
        """Every value that metric_definitions find in the output: timestamp, metric_name, value, rank."""
        return metric_rows(self.run_dir, self._definitions())

    def _definitions(self) -> list[tuple[str, str]]:
        algorithm = self._submitted().job.platform.get("AlgorithmSpecification", {})
        return [(one["Name"], one["Regex"]) for one in algorithm.get("MetricDefinitions", ())]

    def _submitted(self) -> jobs.Submitted:
        found = jobs.submitted(self.run_dir)
        if found is None:
            raise no_such_job(self.name, ())
        return found

    def _follow(self, *, show_output: bool) -> Observation:
        cursor: str | None = None
        last = ""
        try:
            while True:
                seen, lines, cursor = self._look(cursor, show_output)
                if seen.secondary_status != last:
                    last = str(seen.secondary_status)
                    console.transition(last, self.around.now_ns(), seen.reason if seen.ended else "")
                console.lines(lines)
                if seen.ended:
                    return seen
                self.around.pause(POLL_SECONDS)
        except KeyboardInterrupt:
            console.notices([self._how_to_come_back()])
            raise

    def _look(self, cursor: str | None, show_output: bool) -> tuple[Observation, Sequence[str], str | None]:
        """The job's state, and its output since the last look. If the engine does not answer, it is asked again for half a minute."""
        for seconds in (*_PATIENCE_SECONDS, None):
            try:
                seen = self.status()
                lines, later = jobs.logs(self.run_dir, cursor, self.around.environ) if show_output else ((), cursor)
                return seen, lines, later
            except PacelineError:
                if seconds is None:
                    console.notices([f"the engine does not answer; {self._how_to_come_back()}"])
                    raise
                self.around.pause(seconds)
        raise AssertionError("the last look returns or raises")

    def _how_to_come_back(self) -> str:
        return f"the job goes on; to come back: attach({self.name!r}), to end it: paceline stop {self.run_id}"


@dataclass(frozen=True, slots=True)
class TrainingJobAnalytics:
    """The class that SDK v2's training_job_analytics returns."""

    job: TrainingJob
    """The job of these metrics."""

    def metrics(self) -> list[dict[str, Any]]:
        """All values, in the order of time."""
        return self.job.metrics()

    def dataframe(self) -> Any:
        """All values as a pandas.DataFrame.

        Raises:  UsageError E01: pandas is not installed
        """
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise UsageError(
                "E01", "dataframe() needs pandas", saw=str(error), next="pip install pandas, or call metrics()"
            ) from error
        return pandas.DataFrame(self.metrics())


def find_job(text: str, around: Surroundings) -> TrainingJob:
    """The newest job with that name, or the job with that run id, of this directory or of this user.

    Raises:  UsageError U09: no such job
    """
    known = []
    for run in list_runs(around.runs_root):
        found = jobs.submitted(run.path) if (run.path / SUBMISSION_FILE).exists() else None
        if found is None:
            continue
        if text in (found.job.name, found.job.run_id):
            known.append((found.submitted_ns, TrainingJob(found.job.name, found.job.run_id, run.path, around)))
    if not known:
        raise no_such_job(text, [run.id for run in list_runs(around.runs_root)])
    return max(known, key=lambda one: one[0])[1]


def shows_output(logs: object) -> bool:
    """Whether `logs` of fit() asks for the ranks' output.

    Raises:  UsageError U31: not one of SDK v2's values
    """
    if logs in (None, False, "None"):
        return False
    if isinstance(logs, list | tuple) and all(one in _SHOWN for one in logs):
        return True
    if isinstance(logs, str | bool) and logs in _SHOWN:
        return True
    raise UsageError(
        "U31",
        f"logs={logs!r} is none of its values",
        saw="'All', 'Training', 'Rules', 'None', True or False",
        next="logs='All'",
    )


def no_such_job(text: str, known: Sequence[str]) -> UsageError:
    """The error for a name that no submitted job of this user has."""
    saw = f"runs that can be found: {', '.join(known[:5])}" if known else "no run can be found from here"
    return UsageError("U09", f"no training job is called {text!r}", saw=saw, next="paceline ps --all")
