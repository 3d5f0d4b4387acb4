"""Containers of one SageMaker job without Docker: hosts with a network, a name and an /opt/ml of their own, as the platform lays it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from submissions import a_submission

from paceline.facts import Program, ProgramKind
from paceline.parts.engines.package import package
from paceline.parts.engines.submission import Submission
from paceline.parts.lab.emulate.hosts import Hosts
from paceline.parts.sagemaker.engine.engine import engine
from paceline.parts.sagemaker.engine.package import pack
from paceline.parts.sagemaker.engine.request import ARCHIVE, DIRECT, ENTRY_FILE, JOB_FILE

RUN_ID = "r-5a6e0a"
OPTIONS = {
    "image": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/train:1",
    "role": "arn:aws:iam::123456789012:role/train",
    "region": "eu-central-1",
    "bucket": "jobs",
    "instance_type": "ml.m5.xlarge",
}
FRAMEWORK = "sagemaker_pytorch_container.training:main"

# A private /opt whose other folders stay what they are: the interpreter may lie in one of them.
_ENTER = """
set -e
stage=$1 tree=$2
shift 2
mount -t tmpfs tmpfs "$stage"
for entry in /opt/*; do
    if [ -d "$entry" ] && [ "$entry" != /opt/ml ]; then
        mkdir "$stage/${entry#/opt/}"
        mount --rbind "$entry" "$stage/${entry#/opt/}"
    fi
done
mkdir "$stage/ml"
mount --bind "$tree" "$stage/ml"
mount --rbind "$stage" /opt
exec "$@"
"""
_AS_FIRST = ("--pid", "--fork", "--kill-child", "--mount-proc")


def a_job(directory: Path, script: str, **fields: Any) -> Submission:
    """A job of two hosts whose code is one file, train.py."""
    code = directory / "code"
    code.mkdir(parents=True, exist_ok=True)
    (code / "train.py").write_text(script)
    argv = tuple(fields.pop("arguments", ()))
    return a_submission(
        run_id=RUN_ID,
        name="digits",
        program=Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=argv),
        package=package(code, directory / "code.tar.gz"),
        hosts=fields.pop("hosts", 2),
        **fields,
    )


@dataclass
class Container:
    """One host's container: its tree, and what its first process printed."""

    name: str
    tree: Path
    log: Path
    process: "subprocess.Popen[bytes]"

    @property
    def out(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def failure(self) -> str:
        file = self.tree / "output" / "failure"
        return file.read_text() if file.exists() else ""

    @property
    def recording(self) -> Path:
        return self.tree / "output" / "data" / "paceline" / RUN_ID

    def wait(self, seconds: float = 60.0) -> int:
        return self.process.wait(seconds)

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None or condition(), f"ended with {self.process.returncode}\n{self.out}"
            assert time.monotonic() < deadline, self.out
            time.sleep(0.02)

    def until_ended(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """For what becomes true after the container's first process is gone."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.out
            time.sleep(0.02)


@dataclass
class Containers:
    """What SageMaker would do for one job: the trees of its hosts, and the first process of each container."""

    hosts: Hosts
    directory: Path
    python: str
    environment: Mapping[str, str] = field(default_factory=dict)
    running: list[Container] = field(default_factory=list)

    def lay(self, job: Submission, *, start: str = "toolkit", channels: Sequence[str] = ()) -> list[Path]:
        """The trees, as two hosts of one instance group whose own list is in another order than the job's."""
        made = engine({}, {**OPTIONS, "start": start})
        request = made.plan(job)
        archive = self.directory / ARCHIVE
        pack(job, archive, description=request.files[JOB_FILE], token="the agents' secret")
        names = [f"algo-{number}" for number in range(1, job.hosts + 1)]
        wire = {**request.document["HyperParameters"], "sagemaker_submit_directory": json.dumps(str(archive))}
        return [self._tree(name, names, wire, archive, start, channels) for name in names]

    def _tree(
        self, name: str, names: list[str], wire: Mapping[str, str], archive: Path, start: str, channels: Sequence[str]
    ) -> Path:
        tree = self.directory / name
        for below in ("input/config", "input/data", "model", "output/data", "checkpoints"):
            (tree / below).mkdir(parents=True)
        for channel in channels:
            (tree / "input/data" / channel).mkdir()
            (tree / "input/data" / channel / "part").write_text("x")
        group = {"instance_group_name": "homogeneousCluster", "instance_type": "ml.m5.xlarge", "hosts": names[::-1]}
        resources = {
            "current_host": name,
            "current_instance_type": "ml.m5.xlarge",
            "current_group_name": "homogeneousCluster",
            "hosts": names,
            "instance_groups": [group],
            "network_interface_name": "eth0",
        }
        config = {"hyperparameters": wire, "resourceconfig": resources, "inputdataconfig": {c: {} for c in channels}}
        for file, content in config.items():
            (tree / "input/config" / f"{file}.json").write_text(json.dumps(content))
        if start == DIRECT:
            code = tree / "input/data/paceline"
            code.mkdir()
            (code / ARCHIVE).write_bytes(archive.read_bytes())
            entry = Path(sys.modules["paceline.parts.sagemaker.engine.entry"].__file__ or "")
            (code / ENTRY_FILE).write_bytes(entry.read_bytes())
        return tree

    def start(self, index: int, tree: Path, argv: Sequence[str], *, as_first: bool = False, **more: str) -> Container:
        """The first process of one container; `as_first`: with process ids of its own, as its number 1."""
        log = self.directory / f"{tree.name}.log"
        stage = self.directory / f"{tree.name}.opt"
        stage.mkdir()
        # The names of the platform, and nothing of this machine's user.
        environment = {
            "PATH": f"{Path(self.python).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.directory),
            "AWS_REGION": "eu-central-1",
            "TRAINING_JOB_NAME": "digits-r-5a6e0a",
            "SAGEMAKER_TRAINING_MODULE": FRAMEWORK,
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            **self.environment,
            **more,
        }
        enter = [
            "unshare",
            "--mount",
            *(_AS_FIRST if as_first else ()),
            "--",
            "sh",
            "-c",
            _ENTER,
            "sh",
            str(stage),
            str(tree),
        ]
        with log.open("wb") as output:
            process = self.hosts.run_in(
                index,
                [*enter, *argv],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
            )
        self.running.append(Container(tree.name, tree, log, process))
        return self.running[-1]

    def by_toolkit(self, index: int, tree: Path, **more: str) -> Container:
        """As an image with the training toolkit: `train`."""
        return self.start(index, tree, [self.python, "-m", "sagemaker_training.cli.train"], **more)

    def direct(self, index: int, tree: Path, **more: str) -> Container:
        """As ContainerEntrypoint says: our entry point is the container's first process."""
        return self.start(
            index, tree, [self.python, f"/opt/ml/input/data/paceline/{ENTRY_FILE}"], as_first=True, **more
        )

    def close(self) -> None:
        for container in self.running:
            if container.process.poll() is None:
                container.process.kill()
                container.process.wait()


def first_process(container: Container) -> int:
    """The pid, seen from here, of a container's number 1."""
    pid = container.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
