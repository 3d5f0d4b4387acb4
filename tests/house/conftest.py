"""The source of paceline, parsed once for all house tests."""

from pathlib import Path

import pytest
from source_files import Module, modules_of


@pytest.fixture(scope="session")
def modules(repository: Path) -> tuple[Module, ...]:
    """Every module of src/paceline."""
    return modules_of(repository / "src")


@pytest.fixture(scope="session")
def of_an_extra() -> dict[str, set[str]]:
    """Modules that are imported only where somebody asks for them -> what of an extra they import themselves."""
    return {"paceline.storage.s3": {"boto3", "botocore", "fsspec", "s3transfer"}}
