"""The option of `paceline run` for TensorFlow, and the field of the job that it sets."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from paceline.errors import UsageError
from paceline.option import Option, section

OPTIONS = section(
    "of the part frameworks (preview)",
    Option(
        "tf-config",
        "Give each rank TF_CONFIG, in the form of this strategy of TensorFlow. The user's own TF_CONFIG wins.",
        choices=("multi_worker_mirrored", "parameter_server"),
        more="Ports are 8890 and the following for the first form, 2222 and 2223 for the second; others where these are in use. "
        "With parameter_server each host of several has a parameter server beside its rank.",
    ),
)


def job_fields(args: Namespace) -> Mapping[str, Any]:
    """Raises:  UsageError U03: ranks that share a host with a parameter server; U05: torch exchanges gradients."""
    form: str | None = args.tf_config
    gradients = getattr(args, "gradients", None)
    if form == "parameter_server" and args.nproc_per_node != "1":
        raise UsageError(
            "U03",
            f"--nproc-per-node {args.nproc_per_node} is not 1: parameter_server has one process per host",
            next="--nproc-per-node 1",
        )
    if form is not None and gradients is not None:
        raise UsageError(
            "U05",
            "--gradients exchanges gradients of torch, and --tf-config is for TensorFlow, which exchanges its own",
            saw=f"--gradients {gradients} --tf-config {form}",
            next=f"paceline run --tf-config {form} ...",
        )
    return {"tf_config": form}
