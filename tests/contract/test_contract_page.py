"""docs/contract.md and the code say the same."""

import re
from pathlib import Path

from paceline.contract.environment import HostContract, variables
from paceline.contract.tree import Tree, resource_config

PAGE = (Path(__file__).parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text):
    return re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)


def set_variables():
    """Every variable that a host can have, with the key of a channel or hyperparameter as in the page."""
    resources = {**resource_config(("algo-1",), "algo-1", network_interface="lo"), "topology": {}}
    host = HostContract(
        job_name="digits",
        hosts=("algo-1",),
        current_host="algo-1",
        master_addr="algo-1",
        master_port=29400,
        tree=Tree(Path("/opt/ml")),
        entry_point="train.py",
        module_dir="/src",
        hyperparameters={"key": 1},
        channels=("name",),
        resource_config=resources,
    )
    placeholders = {"SM_HP_KEY": "SM_HP_<KEY>", "SM_CHANNEL_NAME": "SM_CHANNEL_<NAME>"}
    return [placeholders.get(name, name) for name in variables(host)]


def test_every_variable_that_is_set_is_on_the_page_and_the_reverse():
    assert sorted(first_cells(section("Variables of the contract"))) == sorted(set_variables())


def test_every_path_of_the_tree_is_on_the_page_and_the_reverse():
    tree = Tree(Path("/"))
    paths = [*tree.directories, *tree.config_files, tree.marker_file, tree.failure, tree.success]
    below = {str(path.relative_to("/")) for path in paths} - {"input/config", "input/data"}
    on_page = {cell.rstrip("/") for cell in first_cells(section("Files"))}
    assert on_page == below | {"input/data/<channel>"}
