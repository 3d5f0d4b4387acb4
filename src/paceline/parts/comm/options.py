"""The options of `paceline run` for the exchange of gradients, and the fields of the job that they set."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from paceline.errors import UsageError
from paceline.option import Option, switch

OPTIONS = (
    Option(
        "gradients",
        "How DDP exchanges gradients: auto, ring, hierarchical, direct, ... with +bf16, +int8. The first host's counts.",
        "NAME",
        default_text="the script's own way",
        more="See [exchange.md](exchange.md).",
    ),
    switch("allow_lossy", "Let --gradients auto choose a strategy that is not exact."),
)


def job_fields(args: Namespace) -> Mapping[str, Any]:
    """Raises:  UsageError U05: a lossy strategy is allowed where none is chosen."""
    name: str | None = args.gradients
    if name is not None:
        name = name.strip().lower() if name.strip().lower() == "auto" else name.strip()
    if args.allow_lossy and name != "auto":
        raise UsageError(
            "U05",
            "--set allow_lossy is for --gradients auto alone: nothing else chooses a strategy",
            saw=f"--gradients {name}, which is taken as it is named" if name else "no --gradients",
            next="leave --set allow_lossy out" if name else "paceline run --gradients auto --set allow_lossy=true ...",
        )
    return {"gradients": name, "allow_lossy": args.allow_lossy}
