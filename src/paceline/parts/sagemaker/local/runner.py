"""Runs one job from its data to its artefacts, in its own thread."""

import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paceline.contract.describe import REASON_CHARACTERS
from paceline.contract.failure import read_failure
from paceline.facts import SecondaryStatus as Secondary
from paceline.parts.sagemaker.local.artifacts import Checkpoints, upload
from paceline.parts.sagemaker.local.entrypoint import OWN_ENTRY, container_argv, run_arguments, script_argv
from paceline.parts.sagemaker.local.host import HostSpec
from paceline.parts.sagemaker.local.host_processes import Exit, HostProcesses
from paceline.parts.sagemaker.local.job_store import LOST, JobStore
from paceline.parts.sagemaker.local.metrics import Scraper
from paceline.parts.sagemaker.local.objects import TransferFailed, TransferStopped
from paceline.parts.sagemaker.local.opt_ml import HostDir, lay_channels, lay_code, lay_config, places
from paceline.parts.sagemaker.local.records import JobRecord
from paceline.parts.sagemaker.local.states import Finished, LimitReached, StageFailed, StageReached
from paceline.parts.sagemaker.local.validation import max_run_seconds
from paceline.probes.ports import free_port

_OF_ANOTHER_JOB = ("PACELINE_", "PET_", "SM_", "TORCHELASTIC_", "SAGEMAKER_", "TRAINING_JOB_")
_OF_ANOTHER_RANK = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"}
_LOOK_SECONDS = 0.1
_CHECKPOINT_SECONDS = 5.0
# After a host has failed, the other hosts have this long to end by themselves, and then this long after SIGTERM.
_PEERS_SECONDS, _PEERS_GRACE_SECONDS = 15.0, 30.0
_CLOSING_GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings that all jobs of a server share. `private_hosts`, `opt_ml`: features of a host that are allowed; `refused`: why not."""

    environ: Mapping[str, str]
    region: str
    s3_endpoint: str
    stop_grace_seconds: float
    processes_per_host: int
    private_hosts: bool
    opt_ml: bool
    refused: str
    closing: threading.Event


class JobRunner:
    """Runs a job whose turn it is. `slot` distinguishes it from jobs that run at the same time."""

    def __init__(self, record: JobRecord, slot: int, shelf: JobStore, config: ServerConfig) -> None:
        self._record = record
        self._request = record.request
        self._setting = config
        self._shelf = shelf
        self._directory = shelf.place(record.name)
        self._places = places(record.request, self._directory)
        # Another server on this machine counts its slots as well, and every host of SageMaker listens on the same port.
        network = f"127.{slot}.{os.getpid() % 256}"
        self._addresses = {place.name: f"{network}.{number}" for number, place in enumerate(self._places, 2)}
        self._scraper = Scraper(record.request["AlgorithmSpecification"].get("MetricDefinitions", ()))
        self._checkpoints = Checkpoints(record.request, self._places)
        self._crew = HostProcesses(self._tell)

    def run(self) -> None:
        """Run the whole job. Any failure becomes the job's FailureReason."""
        try:
            self._run()
        except TransferFailed as failed:
            self._fail(f"ClientError: Data transfer failed: {failed}")
        except Exception as error:
            # A bug in this code must end this job and not the server, and must be visible: its traceback goes to the job's log.
            for line in traceback.format_exc().splitlines():
                self._say(line)
            self._fail(f"InternalServerError: {type(error).__name__}: {error}")
        finally:
            self._crew.close()

    def _run(self) -> None:
        name = self._record.name
        self._shelf.apply(name, StageReached(to=Secondary.DOWNLOADING))
        self._say_where()
        lay_config(self._request, self._places)
        # A stop request that arrives meanwhile is noticed below.
        with suppress(TransferStopped):
            self._fetch()
        if self._goes_on():
            self._start()
            self._watch()
        self._finish()

    def _fetch(self) -> None:
        for notice in lay_channels(self._request, self._places, self._directory, self._goes_on):
            self._say(notice)
        script = script_argv(self._request)
        if script is not None and container_argv(self._request) is None:
            lay_code(script.archive, self._places, self._directory)
        self._checkpoints.fetch(self._goes_on)

    def _start(self) -> None:
        lifeline = os.pipe()
        token, port = secrets.token_hex(16), free_port(next(iter(self._addresses.values())))
        specs = [self._spec(place, lifeline[0], port) for place in self._places]
        environments = {place.name: self._environment(place, token) for place in self._places}
        self._shelf.apply(self._record.name, StageReached(to=Secondary.TRAINING))
        self._crew.start(specs, environments, lifeline)

    def _watch(self) -> None:
        started = last_sent = time.monotonic()
        deadline: float | None = None
        while not self._crew.look():
            now = time.monotonic()
            if now - started >= max_run_seconds(self._request):
                self._shelf.apply(self._record.name, LimitReached())
            grace = self._grace(now)
            if deadline is None and grace is not None:
                self._crew.terminate()
                deadline = now + grace
            if deadline is not None and now >= deadline:
                self._crew.close()
            if now - last_sent >= _CHECKPOINT_SECONDS:
                self._send_checkpoints()
                last_sent = now
            self._setting.closing.wait(_LOOK_SECONDS) if deadline is None else time.sleep(_LOOK_SECONDS)
        self._crew.close()

    def _grace(self, now: float) -> float | None:
        """Seconds that the hosts have after SIGTERM, if there is a reason to end them; None: continue."""
        if self._setting.closing.is_set():
            return min(self._setting.stop_grace_seconds, _CLOSING_GRACE_SECONDS)
        if self._shelf.job(self._record.name).state.why_stopping is not None:
            return self._setting.stop_grace_seconds
        failed = self._crew.first_failure()
        return _PEERS_GRACE_SECONDS if failed is not None and now - failed.at >= _PEERS_SECONDS else None

    def _finish(self) -> None:
        name = self._record.name
        self._shelf.note(name, metrics=tuple(self._scraper.final()))
        if self._setting.closing.is_set():
            self._fail(LOST)
            return
        stopping = self._shelf.job(name).state.why_stopping is not None
        failed = None if stopping else self._crew.first_failure()
        if failed is None:
            self._hand_in(with_model=True)
            self._shelf.apply(name, Finished())
            return
        reason = self._failure_reason(failed)
        try:
            self._hand_in(with_model=False)
        except TransferFailed as lost:
            # The reason of the job's failure is more important than the reason why its output could not be uploaded.
            self._say(f"its output could not be put: {lost}")
        self._fail(reason)

    def _hand_in(self, *, with_model: bool) -> None:
        if not self._crew.exits:
            return
        name = self._record.name
        self._shelf.apply(name, StageReached(to=Secondary.UPLOADING))
        self._send_checkpoints(final=True)
        url, notices = upload(self._request, name, self._places, self._directory, with_model=with_model)
        for notice in notices:
            self._say(notice)
        self._shelf.note(name, model_url=url)

    def _failure_reason(self, failed: Exit) -> str:
        """The text of /opt/ml/output/failure of the first host that failed, else of another host, else the host's last line."""
        trees = sorted(self._places, key=lambda place: place.name != failed.host)
        text = next((text for place in trees if (text := read_failure(place.tree).strip())), "")
        if not text:
            stream = self._shelf.stream(self._record.name, failed.host)
            numbers = stream.between(None, None)
            last = [line.text for line in stream.read(numbers[-20:]) if line.text.strip()]
            text = f"{failed.host} left no /opt/ml/output/failure; its last line: {last[-1] if last else '(none)'}"
        end = f", exit code: {failed.code}"
        start = "AlgorithmError: "
        return f"{start}{text[: REASON_CHARACTERS - len(start) - len(end)]}{end}"

    def _spec(self, place: HostDir, lifeline: int, port: int) -> HostSpec:
        argv, directory, to_all = self._argv(place, port)
        return HostSpec(
            name=place.name,
            addresses=self._addresses,
            private=self._setting.private_hosts,
            tree=str(place.tree.base) if self._setting.opt_ml else "",
            directory=directory,
            argv=argv,
            to_all=to_all,
            lifeline=lifeline,
        )

    def _argv(self, place: HostDir, port: int) -> tuple[tuple[str, ...], str, bool]:
        """The command, its directory, and whether SIGTERM goes to all its processes. paceline's own agent forwards SIGTERM itself."""
        base = Path("/opt/ml") if self._setting.opt_ml else place.tree.base
        container = container_argv(self._request)
        if container is not None:
            return container, "/", True
        script = script_argv(self._request)
        assert script is not None
        code = str(base / "code")
        if script.program == OWN_ENTRY:
            return (sys.executable, OWN_ENTRY), code, False
        argv = run_arguments(
            script,
            place.instance_type,
            base="" if self._setting.opt_ml else str(place.tree.base),
            code=code,
            runs=str(self._directory / "hosts" / place.name / "recordings"),
            several=len(self._places) > 1,
            port=port,
            most_processes=self._setting.processes_per_host,
        )
        return (sys.executable, "-P", "-m", "paceline", *argv), code, False

    def _environment(self, place: HostDir, token: str) -> dict[str, str]:
        """The variables of a training container, added to the server's variables without those that belong to another job or rank."""
        kept = {
            name: value
            for name, value in self._setting.environ.items()
            if not name.startswith(_OF_ANOTHER_JOB) and name not in _OF_ANOTHER_RANK
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
        store = {"AWS_ENDPOINT_URL_S3": self._setting.s3_endpoint} if self._setting.s3_endpoint else {}
        base = {} if self._setting.opt_ml else {"SAGEMAKER_BASE_DIR": str(place.tree.base)}
        named = {
            "PATH": path,
            "PYTHONUNBUFFERED": "1",
            "TRAINING_JOB_NAME": self._record.name,
            "TRAINING_JOB_ARN": self._record.arn,
            "AWS_REGION": self._setting.region,
            "AWS_DEFAULT_REGION": self._setting.region,
        }
        secret = {"PACELINE_TOKEN": token} if self._is_ours() else {}
        return {**kept, **store, **named, **base, **secret, **self._request.get("Environment", {})}

    def _is_ours(self) -> bool:
        """Whether this server starts the agents, and not an entry point of the job's own."""
        script = script_argv(self._request)
        return container_argv(self._request) is None and script is not None and script.program != OWN_ENTRY

    def _send_checkpoints(self, *, final: bool = False) -> None:
        for line in self._checkpoints.send(final=final):
            self._say(line)

    def _say_where(self) -> None:
        algorithm = self._request["AlgorithmSpecification"]
        image = algorithm.get("TrainingImage") or algorithm.get("AlgorithmName")
        self._say(
            f"{image} is not pulled: the job runs with {sys.executable} on hosts of this machine: {', '.join(self._addresses)}"
        )
        if not self._setting.opt_ml:
            self._say(
                f"/opt/ml cannot be had here ({self._setting.refused}); SAGEMAKER_BASE_DIR names each host's tree"
            )

    def _goes_on(self) -> bool:
        state = self._shelf.job(self._record.name).state
        return state.why_stopping is None and not self._setting.closing.is_set()

    def _fail(self, reason: str) -> None:
        self._shelf.apply(self._record.name, StageFailed(reason=reason))

    def _say(self, text: str) -> None:
        self._tell(self._places[0].name, f"paceline sagemaker-local: {text}")

    def _tell(self, host: str, line: str) -> None:
        now = time.time()
        self._scraper.see(line, now)
        self._shelf.stream(self._record.name, host).append(round(now * 1000), line)
