"""K17: requirements.txt installs another release of the framework over the image's release."""

import re
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.job_facts import BeforeRun

PAGE = """\
requirements.txt replaces the framework of the image

What it means: The job asks for an image with one release of PyTorch or TensorFlow, and its requirements.txt pins
  another release. When the job starts, pip installs the pinned release over the one of the image.
Why it matters: Every host downloads gigabytes before its first step, and a slow host delays all. The parts of the
  image that were built for its release (NCCL's plug-in for EFA, torchvision, apex) stay and no longer match.
What to do: Remove the line and ask for that release with framework_version, or use an image of your own (image_uri).
Source: sagemaker-training-toolkit, install of requirements.txt; AWS deep learning containers, release notes.
"""

_PACKAGES = {"pytorch": "torch", "tensorflow": "tensorflow"}
_PIN = re.compile(r"\s*([A-Za-z_.-]+)\s*(?:\[[^\]]*\]\s*)?===?\s*([0-9]+(?:\.[0-9]+)*)(?:\+\w+)?\s*(?:#.*)?")


def find(before: BeforeRun) -> Iterator[Finding]:
    """A finding for the line that pins another release."""
    package = _PACKAGES.get((before.framework or "").lower())
    if before.engine != "sagemaker" or before.requirements is None or package is None:
        return
    for number, line in enumerate(before.requirements.splitlines(), start=1):
        pin = _PIN.fullmatch(line)
        if pin is None or pin[1].lower() != package:
            continue
        if before.image_uri is not None or before.framework_version is None:
            raise Unknown(f"the release of {package} in the image")
        if not _same(pin[2], before.framework_version):
            yield Finding(
                code="K17",
                severity=Severity.WARNING,
                what=f"requirements.txt:{number} replaces {package} {before.framework_version} of the image by {pin[2]} on every host",
                saw=line.strip(),
                next=f"framework_version={pin[2]!r}, and requirements.txt without the line",
            )


def _same(pinned: str, wanted: str) -> bool:
    """Whether the two versions agree in the parts that both have: 2.1 matches any 2.1."""
    return all(one == other for one, other in zip(pinned.split("."), wanted.split("."), strict=False))


RULE = Rule(code="K17", page=PAGE, find=find)
