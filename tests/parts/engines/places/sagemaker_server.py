"""`paceline sagemaker-local` as a process of its own, and what its tests send and look at."""

import configparser
import io
import json
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROLE = "arn:aws:iam::123456789012:role/training"
GROUP = "/aws/sagemaker/TrainingJobs"
OVER = ("Completed", "Failed", "Stopped")


@dataclass
class Server:
    """A running server; `sagemaker` and `logs` are boto3's clients of it."""

    process: subprocess.Popen[str]
    url: str
    opt_ml: bool
    directory: Path
    environment: dict[str, str]
    sagemaker: Any
    logs: Any

    def create(self, name, directory, script="", *, hosts=1, **changes):
        """A job in script mode whose code is one file."""
        resources = {"InstanceType": "local", "InstanceCount": hosts, "VolumeSizeInGB": 1}
        request = {
            "TrainingJobName": name,
            "RoleArn": ROLE,
            "AlgorithmSpecification": {"TrainingImage": "an-image", "TrainingInputMode": "File"},
            "HyperParameters": hyperparameters(archive(directory, script).as_uri()),
            "OutputDataConfig": {"S3OutputPath": (directory / "out").as_uri()},
            "ResourceConfig": resources,
            "StoppingCondition": {"MaxRuntimeInSeconds": 250},
        }
        return self.sagemaker.create_training_job(**{**request, **changes})

    def describe(self, name):
        return self.sagemaker.describe_training_job(TrainingJobName=name)

    def until(self, name, condition, seconds=200):
        deadline = time.monotonic() + seconds
        while not condition(shown := self.describe(name)):
            assert time.monotonic() < deadline, (shown, self.lines(name))
            time.sleep(0.1)
        return shown

    def ended(self, name):
        return self.until(name, lambda shown: shown["TrainingJobStatus"] in OVER)

    def lines(self, name):
        streams = self.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
        found = []
        for stream in streams:
            ask = {"logGroupName": GROUP, "logStreamName": stream["logStreamName"], "startFromHead": True}
            found += [event["message"] for event in self.logs.get_log_events(**ask)["events"]]
        return found

    def until_said(self, name, text):
        # The stream appears with the job's first line.
        self.until(name, lambda shown: shown["SecondaryStatus"] != "Pending")
        self.until(name, lambda shown: any(text in line for line in self.lines(name)))


def hyperparameters(archive_url, program="train.py", **others):
    named = {"sagemaker_program": program, "sagemaker_submit_directory": archive_url, **others}
    return {key: json.dumps(value) for key, value in named.items()}


def archive(directory, script, name="train.py"):
    path = directory / "sourcedir.tar.gz"
    content = script.encode()
    draft = path.with_suffix(".part")
    with tarfile.open(draft, "w:gz") as file:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    # At once: the server may be reading that of the job before.
    draft.replace(path)
    return path


def names_in(path_or_bytes):
    data = path_or_bytes.read_bytes() if isinstance(path_or_bytes, Path) else path_or_bytes
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        return sorted(file.getnames())


def key_in(path):
    table = configparser.RawConfigParser()
    table.read(path)
    return dict(table["default"])


@contextmanager
def serving(directory, environment, *options):
    import boto3

    argv = ["sagemaker-local", "--port", "0", "--json", "--jobs-dir", str(directory / "jobs"), *options]
    with (directory / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *argv],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    try:
        said = process.stdout.readline()
        assert said, (directory / "server.log").read_text()
        facts = json.loads(said)
        clients = {
            name: boto3.client(name, endpoint_url=facts["url"], region_name="us-east-1",
                               **key_in(facts["credentials"]))
            for name in ("sagemaker", "logs")
        }  # fmt: skip
        yield Server(process, facts["url"], facts["opt_ml"], directory, environment, **clients)
        for client in clients.values():
            client.close()
    finally:
        with process:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            finally:
                process.kill()


def processes():
    """Command lines of everything that runs here."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found
