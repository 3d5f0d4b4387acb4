"""Emulated hosts need root and a kernel that allows them; elsewhere these tests are shown as skipped, with the reason."""

import pytest

from paceline.errors import UsageError
from paceline.parts.lab.emulate.hosts import Hosts


@pytest.fixture(scope="session")
def emulation() -> None:
    """Skips where hosts with networks of their own cannot be made."""
    try:
        with Hosts(1):
            pass
    except UsageError as refused:
        pytest.skip(f"{refused}: {refused.saw}")


@pytest.fixture
def two_hosts(emulation):
    with Hosts(2) as hosts:
        yield hosts
