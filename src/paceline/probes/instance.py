"""The type of machine that this host was rented as, its region, and what the catalogue says of its price. No request leaves the machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.catalog.lookup import find_machine_type
from paceline.catalog.types import MachineType

_DMI = Path("/sys/devices/virtual/dmi/id")
_SAGEMAKER = Path("/opt/ml/input/config/resourceconfig.json")
_NOTHING: dict[str, Any] = dict.fromkeys(
    ("instance_type", "instance_from", "region", "usd_per_hour", "price_from"), None
)


def read_instance(environ: Mapping[str, str], dmi: Path = _DMI, sagemaker: Path = _SAGEMAKER) -> dict[str, Any]:
    """`instance_type`, `instance_from`, `region`, `usd_per_hour` and `price_from`; None: nobody here says it."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    name, source = _of_sagemaker(sagemaker), "SageMaker's resourceconfig.json"
    if name is None and _text(dmi / "sys_vendor") == "Amazon EC2":
        name, source = _text(dmi / "product_name"), "the machine's DMI"
    if not name:
        return {**_NOTHING, "region": region}
    known = find_machine_type(name.removeprefix("ml."))
    return {
        **_NOTHING,
        "instance_type": name,
        "instance_from": source,
        "region": region,
        **(price_of(known, by_sagemaker=name.startswith("ml.")) if known is not None else {}),
    }


def price_of(machine: MachineType, *, by_sagemaker: bool) -> dict[str, Any]:
    """USD an hour and where the number is from. SageMaker's price is another; where it is not known, EC2's is given and named as that."""
    price = machine.sagemaker_usd_per_hour if by_sagemaker else None
    field = "usd_per_hour" if price is None else "sagemaker_usd_per_hour"
    price = machine.usd_per_hour if price is None else price
    if price is None:
        return {}
    note = "EC2's price, not SageMaker's: " if by_sagemaker and field == "usd_per_hour" else ""
    return {"usd_per_hour": price, "price_from": f"{note}{machine.sources.get(field) or 'the catalogue'}"}


def _of_sagemaker(file: Path) -> str | None:
    try:
        found = json.loads(file.read_text()).get("current_instance_type")
    except (OSError, ValueError, AttributeError):
        return None
    # paceline's own tree of the contract names no type of EC2.
    return found if isinstance(found, str) and found.startswith("ml.") else None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None
