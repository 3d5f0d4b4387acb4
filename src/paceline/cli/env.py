"""Show what this machine, this Python and this torch offer a training job. The output can be pasted into a report."""

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict
from typing import Any

from paceline import __version__
from paceline.errors import UsageError
from paceline.namespaces import refusal
from paceline.option import Option, Verb
from paceline.probes import environment
from paceline.probes.gpus import count_visible, read_gpus
from paceline.probes.interfaces import read_interfaces
from paceline.probes.torch_version import FEATURES, TorchInstall, not_tried, read_torch, read_torch_features
from paceline.views.env import env_facts, env_text, feature_lines

VERB = Verb(
    "env",
    __doc__ or "",
    (
        ("paceline env", "this machine, in half a screen"),
        ("paceline env --torch", "and this torch's features; imports torch, takes seconds"),
    ),
    (
        Option("torch", "Look for each torch feature that paceline uses, by importing torch in a process of its own."),
        Option(
            "python",
            "The interpreter that runs the ranks.",
            "FILE",
            default_text="this one",
            variable="PYTHON_EXEC",
        ),
    ),
    page="Everything that cannot be read is listed as *not judged*.",
)


def run(args: argparse.Namespace) -> int:
    if args.python is not None and shutil.which(args.python) is None:
        raise UsageError(
            "U03",
            f"--python {args.python} is no program that can be started",
            saw="not a file that may be executed, and not on PATH",
            next="--python /usr/bin/python3",
        )
    install = read_torch_features(args.python) if args.torch else read_torch(args.python)
    if args.python is not None and install.python_version is None:
        raise UsageError(
            "U03",
            f"--python {args.python} is no Python that answers",
            saw=install.reason,
            next="--python /usr/bin/python3",
        )
    facts = env_facts(_sections(install))
    print(json.dumps(facts) if args.json else env_text(facts))
    sys.stdout.flush()
    return 0


def _sections(install: TorchInstall) -> dict[str, Any]:
    refused = refusal()
    return {
        "paceline": {"version": __version__},
        "packages": environment.read_packages(),
        "python": {"version": install.python_version, "executable": install.python},
        "torch": {
            "version": install.version,
            "cuda": install.cuda,
            "reason": install.reason,
            "not_tried": not_tried(install.version),
            "features": feature_lines(install.features, FEATURES, install.features_reason),
        },
        "system": environment.read_system(),
        "cpu": environment.read_cpu(),
        "memory": environment.read_memory(),
        "namespaces": {"allowed": refused is None, "reason": refused or ""},
        "gpus": _gpus(),
        "interfaces": read_interfaces(),
        "limits": environment.read_limits(),
        "variables": environment.relevant_variables(os.environ),
    }


def _gpus() -> dict[str, Any]:
    reading = read_gpus()
    visible, visible_reason = count_visible(os.environ, reading)
    return {
        "devices": None if reading.gpus is None else [asdict(gpu) for gpu in reading.gpus],
        "reason": reading.reason,
        "visible_count": visible,
        "visible_reason": visible_reason if reading.gpus is not None else "",
    }
