"""All jobs of one directory, in memory and on disk. One event at a time changes a job."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import structs

from paceline.atomic_write import atomic_write
from paceline.errors import UsageError
from paceline.parts.sagemaker.local.errors import ApiError, not_found
from paceline.parts.sagemaker.local.log_streams import LogStream
from paceline.parts.sagemaker.local.records import JobRecord, job_arn
from paceline.parts.sagemaker.local.states import Event, StageFailed, TrainingJobState, created, step

LOST = "InternalServerError: paceline sagemaker-local was ended while this job had not ended"
_MARKER = ":training-job/"


class JobStore:
    """The jobs below a directory. One server at a time owns the directory."""

    def __init__(self, directory: Path, *, region: str, clock: Callable[[], float] = time.time) -> None:
        self.directory = directory
        self._region = region
        self._clock = clock
        self._records: dict[str, JobRecord] = {}
        self._streams: dict[str, LogStream] = {}
        self._lock = threading.RLock()
        self._held: IO[str] | None = None

    def open(self) -> None:
        """Take the directory, and read the jobs of earlier servers. A job that had not ended has failed.

        Raises:  UsageError U22: another server has the directory, or it cannot be written
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Every process that can open the file could lock it, so only the owner may open it.
            self._held = os.fdopen(
                os.open(self.directory / ".lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w"
            )
            os.fchmod(self._held.fileno(), 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            busy = isinstance(error, BlockingIOError)
            raise UsageError(
                "U22",
                f"{self.directory} cannot be the directory of this server's jobs",
                saw="another paceline sagemaker-local has it" if busy else f"{error.strerror}: {error.filename}",
                next="paceline sagemaker-local --jobs-dir ANOTHER_DIRECTORY ...",
            ) from error
        for path in sorted(self.directory.glob("*/job.json")):
            self._load(path)

    def close(self) -> None:
        """Release the directory."""
        if self._held is not None:
            self._held.close()

    def place(self, name: str) -> Path:
        """The directory of one job."""
        return self.directory / name

    def add(self, request: Mapping[str, Any]) -> JobRecord:
        """Add a new job.

        Raises:  ApiError ResourceInUse: a job with this name exists
        """
        name = request["TrainingJobName"]
        with self._lock:
            if (there := self._records.get(name)) is not None:
                raise ApiError(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, and a training job with this name"
                    f" already exists ({there.arn})",
                )
            record = JobRecord(
                name=name,
                arn=job_arn(self._region, request["RoleArn"], name),
                serial=max((one.serial for one in self._records.values()), default=0) + 1,
                request={key: value for key, value in request.items() if key != "Tags"},
                state=created(self._clock()),
                tags={tag["Key"]: tag["Value"] for tag in request.get("Tags", ())},
            )
            self.place(name).mkdir(mode=0o700, exist_ok=True)
            (self.place(name) / "logs").mkdir(exist_ok=True)
            self._keep(record)
        return record

    def job(self, name: str) -> JobRecord:
        """The job with this name.

        Raises:  ApiError ValidationException: there is no such job
        """
        with self._lock:
            if name not in self._records:
                raise not_found()
            return self._records[name]

    def of_arn(self, arn: str) -> JobRecord:
        """The job with this ARN.

        Raises:  ApiError ValidationException: it is not a training job's ARN, or there is no such job
        """
        record = self.job(arn.rpartition(_MARKER)[2])
        if record.arn != arn:
            raise not_found()
        return record

    def all(self) -> list[JobRecord]:
        """Every job, oldest first."""
        with self._lock:
            return sorted(self._records.values(), key=lambda record: record.serial)

    def apply(self, name: str, event: Event) -> TrainingJobState:
        """Change a job's state by one event, and store the job."""
        with self._lock:
            record = self._records[name]
            state = step(record.state, event, self._clock())
            if state != record.state:
                self._keep(structs.replace(record, state=state))
            return state

    def note(self, name: str, **changes: Any) -> JobRecord:
        """Set `tags`, `model_url` or `metrics` of a job."""
        with self._lock:
            record = structs.replace(self._records[name], **changes)
            self._keep(record)
            return record

    def stream(self, job: str, host: str) -> LogStream:
        """The log stream of a host. It is created if it does not exist."""
        with self._lock:
            name = f"{job}/{host}-{int(self._records[job].state.created)}"
            if name not in self._streams:
                path = self.place(job) / "logs" / f"{name.rpartition('/')[2]}.jsonl"
                path.touch()
                self._streams[name] = LogStream(name=name, path=path)
            return self._streams[name]

    def streams(self) -> Sequence[LogStream]:
        """Every log stream, in the order of names."""
        with self._lock:
            return [self._streams[name] for name in sorted(self._streams)]

    def _load(self, path: Path) -> None:
        try:
            record = msgspec.json.decode(path.read_bytes(), type=JobRecord)
        except (OSError, ValueError, msgspec.ValidationError) as error:
            raise UsageError(
                "U22",
                f"{path} is no job of paceline sagemaker-local",
                saw=f"{type(error).__name__}: {error}",
                next=f"mv {path.parent} ELSEWHERE",
            ) from error
        self._records[record.name] = record
        for file in sorted((path.parent / "logs").glob("*.jsonl")):
            stream = LogStream(name=f"{record.name}/{file.stem}", path=file)
            stream.load()
            self._streams[stream.name] = stream
        if not record.state.over:
            self.apply(record.name, StageFailed(reason=LOST))

    def _keep(self, record: JobRecord) -> None:
        path = self.place(record.name) / "job.json"
        # Hyperparameters and the environment may contain secrets.
        with atomic_write(path, mode=0o600) as file:
            file.write(msgspec.json.encode(record))
        self._records[record.name] = record
