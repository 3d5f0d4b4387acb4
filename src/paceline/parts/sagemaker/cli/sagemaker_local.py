"""Serve SageMaker's training API here and run its jobs on local hosts: local mode without Docker, for any boto3 or SageMaker SDK."""

import argparse
import json
import os
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

from paceline.contract.local_key import CREDENTIALS_FILE
from paceline.option import Option, Verb

_JOBS_DIR = ".paceline/sagemaker-local"
VERB = Verb(
    "sagemaker-local",
    __doc__ or "",
    (
        (
            "paceline sagemaker-local --port 8090",
            "boto3.client('sagemaker', endpoint_url='http://127.0.0.1:8090')",
        ),
        (
            "paceline sagemaker-local --port 8090 --s3-endpoint http://127.0.0.1:5000",
            "channels and outputs on another S3 server",
        ),
    ),
    (
        Option("port", "Port to listen on; 0 for a free one.", "PORT", default="8090"),
        Option(
            "host",
            "Address to listen on.",
            "ADDRESS",
            default="127.0.0.1",
            more="Requests are signed with a key that the server makes: [who may ask](sagemaker.md#who-may-ask).",
        ),
        Option(
            "unix",
            "Listen on this UNIX socket, which only you can open, and on no port. It needs no signatures.",
            "SOCKET",
        ),
        Option("jobs-dir", "Directory where jobs are kept.", "DIR", default_text=_JOBS_DIR),
        Option("dir", "The old name of --jobs-dir.", "DIR", stored_as="jobs_dir_before", hidden=True),
        Option(
            "s3-endpoint",
            "The S3 server behind s3:// URLs. file:// URLs need none.",
            "URL",
            default_text="AWS's own",
            variable="AWS_ENDPOINT_URL_S3",
        ),
        Option("max-jobs", "Jobs that run at once; others are Pending, in order.", "N", default="1"),
        Option("max-hosts", "Hosts that a job may have; more is a ResourceLimitExceeded.", "N", default="16"),
        Option(
            "processes-per-host",
            "Most ranks of a host if the request leaves it to the instance type.",
            "N",
            default="1",
        ),
        Option(
            "stop-grace",
            "Time between SIGTERM and SIGKILL of a job that is stopped or out of time.",
            "DURATION",
            default="120",
        ),
    ),
    page="""\
It speaks AWS's own protocol. Ctrl-C ends every job. What is served and how a job runs is in
[sagemaker.md](sagemaker.md#sagemaker-local).""",
    notes="""\
`--json` prints `paceline.listening/1` once it listens: [its keys](schemas.md#pacelinelistening1).""",
)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C, then end every job.

    Raises:  UsageError E01 (extra), U04 (port), U22 (directory), U03 (a value)
    """
    from paceline.cli.values import duration_seconds, number_between
    from paceline.parts.sagemaker.local import app
    from paceline.parts.sagemaker.local.runner import ServerConfig

    most_jobs, most_hosts, processes = (
        number_between(option, text, 1, 250)
        for option, text in (
            ("--max-jobs", args.max_jobs),
            ("--max-hosts", args.max_hosts),
            ("--processes-per-host", args.processes_per_host),
        )
    )
    grace = duration_seconds("--stop-grace", args.stop_grace)
    port = number_between("--port", args.port, 0, 65_535)
    app.need_extra()
    directory = _jobs_dir(args).absolute()
    allowed = app.allowed()
    config = ServerConfig(
        environ=dict(os.environ),
        region=app.region_of(os.environ),
        s3_endpoint=args.s3_endpoint or "",
        stop_grace_seconds=grace,
        processes_per_host=processes,
        private_hosts=allowed.private_hosts,
        opt_ml=allowed.opt_ml,
        refused=allowed.refused,
        closing=threading.Event(),
    )
    listening = app.listening_at(Path(args.unix)) if args.unix else app.listening(args.host, port)
    with listening as listener:
        host = f"[{args.host}]" if ":" in args.host else args.host
        url = f"unix://{Path(args.unix).absolute()}" if args.unix else f"http://{host}:{listener.getsockname()[1]}"
        app.serve(
            listener,
            directory,
            config,
            most_jobs=most_jobs,
            most_hosts=most_hosts,
            ready=lambda unknown: _tell(url, directory, config, unknown, json_wanted=args.json),
        )
    return 0


def _jobs_dir(args: argparse.Namespace) -> Path:
    if args.jobs_dir_before:
        sys.stderr.write(
            "notice: --dir is a further directory of a run on other verbs; from 0.3 on, jobs are kept in --jobs-dir only\n"
        )
    return Path(args.jobs_dir or args.jobs_dir_before or _JOBS_DIR)


def listening_facts(url: str, directory: Path, config: Any) -> dict[str, Any]:
    """Where the server listens, for a program. `config`: its ServerConfig."""
    return {
        "schema": "paceline.listening/1",
        "url": url,
        "directory": str(directory),
        "credentials": None if url.startswith("unix:") else str(directory / CREDENTIALS_FILE),
        "s3_endpoint": config.s3_endpoint or None,
        "opt_ml": config.opt_ml,
    }


def _tell(url: str, directory: Path, config: Any, unknown: str | None, *, json_wanted: bool) -> None:
    has_key = not url.startswith("unix:")
    credentials = str(directory / CREDENTIALS_FILE)
    if json_wanted:
        print(json.dumps(listening_facts(url, directory, config)), flush=True)
        return
    hosts = "/opt/ml of their own" if config.opt_ml else f"SAGEMAKER_BASE_DIR instead of /opt/ml ({config.refused})"
    told = (
        f"key    {credentials}; paceline's own clients on this machine find it"
        + (f" only if they are told ({unknown})" if unknown else ""),
        f"client export AWS_SHARED_CREDENTIALS_FILE={shlex.quote(credentials)}",
        f"       export AWS_ENDPOINT_URL_SAGEMAKER={url} AWS_ENDPOINT_URL_CLOUDWATCH_LOGS={url}",
        f"       export AWS_ENDPOINT_URL_STS={url} AWS_ENDPOINT_URL_IAM={url}  # the SageMaker SDK asks these first",
    )
    lines = (
        f"sagemaker-local  {url}  (SageMaker and CloudWatch Logs; Ctrl-C ends every job)",
        f"jobs   {directory}; hosts have {hosts}",
        f"S3     {config.s3_endpoint or 'as boto3 finds it'}; file:// URLs as well",
        *(told if has_key else ("client curl --unix-socket and the like; nobody but you can open the socket",)),
    )
    print("\n".join(f"paceline  {line}" for line in lines), file=sys.stderr, flush=True)
