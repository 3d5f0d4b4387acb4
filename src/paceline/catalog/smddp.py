"""SageMaker's data-parallel library: its releases, and the types on which each of them loads.

Source:  SMDDP release notes, 2.0.1 to 2.5.0; SageMaker developer guide, "Supported Frameworks, AWS Regions, and Instances Types",
         May 2023; sagemaker-python-sdk 2.19 to 2.222, fw_utils
"""

import re

from paceline.errors import UsageError

# Type -> first version that was built for it, and the first that was not any more; None if the last release still is.
TYPES: dict[str, tuple[str, str | None]] = {
    "p3.16xlarge": ("1.0", "2.0"),
    "p3dn.24xlarge": ("1.0", "2.0"),
    "p4d.24xlarge": ("1.0", None),
    "p4de.24xlarge": ("1.6", None),
}
# Version -> torch that it was built for.
RELEASES = {
    "1.0.0": "1.6, 1.7.1",
    "1.2.3": "1.8.1",
    "1.2.0": "1.9.1",
    "1.4.0": "1.10.2",
    "1.4.1": "1.11.0",
    "1.5.0": "1.12.0",
    "1.6.0": "1.12.1",
    "1.7.0": "1.13.1",
    "1.8.0": "2.0.0",
    "2.0.1": "2.0.1",
    "2.1.0": "2.1.0",
    "2.2.0": "2.2.0",
    "2.3.0": "2.3.0",
    "2.5.0": "2.4.1",
}


def release(version: str) -> tuple[int, ...]:
    """A version as three numbers that compare.

    Holds:   release("2") == release("2.0.0")
    Raises:  UsageError U03: it is none
    """
    if not re.fullmatch(r"v?\d+(\.\d+){0,2}", version):
        raise UsageError("U03", f"{version!r} is no version", saw="expected numbers with dots", next="--for smddp@2.3")
    numbers = [int(part) for part in version.removeprefix("v").split(".")]
    return (*numbers, 0, 0)[:3]


def last_release() -> tuple[int, ...]:
    """The last release there was (October 2024)."""
    return max(map(release, RELEASES))
