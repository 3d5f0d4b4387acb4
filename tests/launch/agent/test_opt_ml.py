"""Which machine keeps its own /opt/ml. Real jobs that see their tree there are in tests/process/test_opt_ml.py."""

import pytest

from paceline.contract.tree import Tree
from paceline.launch.agent.opt_ml import opt_ml_refusal, own_directory, show_at_opt_ml


@pytest.mark.parametrize("name", ["input", "model", "output", "checkpoints", "code"])
def test_a_machine_with_a_directory_of_the_contract_keeps_it(tmp_path, name):
    (tmp_path / name).mkdir()
    assert own_directory(tmp_path) == tmp_path / name
    for refused in (opt_ml_refusal(tmp_path), show_at_opt_ml(Tree(tmp_path / "tree"), tmp_path)):
        assert refused == f"this machine has a {tmp_path / name} of its own"


def test_other_files_there_are_no_reason(tmp_path):
    (tmp_path / "metadata").mkdir()
    assert own_directory(tmp_path) is None
    assert own_directory(tmp_path / "nothing") is None
