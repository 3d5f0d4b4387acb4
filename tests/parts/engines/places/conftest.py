"""What tests on engines share: jobs that they submit are not listed among this user's own."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_index(tmp_path_factory: pytest.TempPathFactory):
    """The run index of this process lies in a directory of the tests."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
