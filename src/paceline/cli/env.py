"""Show what this machine, this Python and this torch offer a training job. The output can be pasted into a report."""

import argparse
import os
import shutil
import sys

from paceline import __version__
from paceline.errors import UsageError
from paceline.namespaces import refusal
from paceline.option import Option, Verb
from paceline.probes import environment
from paceline.probes.gpus import count_visible, read_gpus
from paceline.probes.interfaces import read_interfaces
from paceline.probes.torch_version import FEATURES, TorchInstall, not_tried, read_torch, read_torch_features
from paceline.views.documents import json_text
from paceline.views.env import (
    EnvDocument,
    GpuFacts,
    NamespaceFacts,
    PacelineFacts,
    PythonFacts,
    TorchFacts,
    TorchFeature,
    env_text,
)

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
    found = env_document(install)
    print(json_text(found) if args.json else env_text(found))
    sys.stdout.flush()
    return 0


def env_document(install: TorchInstall) -> EnvDocument:
    """What this machine offers, with this torch."""
    refused, known = refusal(), install.features
    reason = install.features_reason if known is None else ""
    reading = read_gpus()
    visible, visible_reason = count_visible(os.environ, reading)
    return EnvDocument(
        paceline=PacelineFacts(__version__),
        packages=environment.read_packages(),
        python=PythonFacts(install.python_version, install.python),
        torch=TorchFacts(
            version=install.version,
            cuda=install.cuda,
            reason=install.reason,
            not_tried=not_tried(install.version),
            features=tuple(
                TorchFeature(name, purpose, None if known is None else known[name], reason)
                for name, purpose in FEATURES.items()
            ),
        ),
        system=environment.read_system(),
        cpu=environment.read_cpu(),
        memory=environment.read_memory(),
        namespaces=NamespaceFacts(refused is None, refused or ""),
        gpus=GpuFacts(
            devices=reading.gpus,
            reason=reading.reason,
            visible_count=visible,
            visible_reason=visible_reason if reading.gpus is not None else "",
        ),
        interfaces=tuple(read_interfaces()),
        limits=environment.read_limits(),
        variables=environment.relevant_variables(os.environ),
    )
