"""The addresses of AWS's own images, as notebooks ask for them. Jobs on this machine run no image: there, the address has no effect."""

from typing import Any

from paceline.catalog.lookup import find_machine_type
from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator import console
from paceline.parts.sagemaker.estimator.arguments import shown
from paceline.parts.sagemaker.estimator.sagemaker_fields import framework_image

_FRAMEWORKS = ("pytorch", "tensorflow")
_NO_IMAGE = "no-aws-region-here"


def retrieve(
    framework: str,
    region: str | None = None,
    version: str | None = None,
    py_version: str | None = None,
    instance_type: str | None = None,
    image_scope: str | None = "training",
    **_ignored: Any,
) -> str:
    """The image of PyTorch or TensorFlow for training. Without a region, a placeholder for jobs of this machine.

    Raises:  UsageError U31: another framework or scope, no version or py_version, or a region whose registry is not known
    """
    if framework not in _FRAMEWORKS or image_scope not in ("training", None):
        raise UsageError(
            "U31",
            "only the images of PyTorch and TensorFlow for training are known",
            saw=f"framework={shown(framework)}, image_scope={shown(image_scope)}",
            next="write the address of the image itself",
        )
    if region is None:
        console.notices(["no AWS region here; the image is a placeholder for jobs of this machine"])
        return f"{_NO_IMAGE}/{framework}-training:{version}"
    if version is None or py_version is None:
        raise UsageError(
            "U31",
            "an image has a version and a Python",
            saw=f"version={version}, py_version={py_version}",
            next="version='2.6.0', py_version='py312'",
        )
    machine = find_machine_type(instance_type) if instance_type else None
    kind = "gpu" if machine is None or machine.accelerator is not None else "cpu"
    return framework_image(f"{framework}-training", version, py_version, kind, region)
