import os

from paceline.contract.failure import forget_outcome, read_failure, write_failure, write_success
from paceline.contract.tree import Tree, lay_directories


def laid(tmp_path):
    tree = Tree(tmp_path)
    lay_directories(tree)
    return tree


def test_the_reason_is_cut_at_what_sagemaker_shows(tmp_path):
    tree = laid(tmp_path)
    assert write_failure(tree, "é" * 2000)
    assert tree.failure.read_text(encoding="utf-8") == "é" * 1024


def test_a_reason_that_the_script_wrote_is_kept(tmp_path):
    tree = laid(tmp_path)
    tree.failure.write_text("the loss is not a number")
    assert not write_failure(tree, "rank 0 ended with code 1")
    assert read_failure(tree) == "the loss is not a number"


def test_an_empty_file_is_no_reason(tmp_path):
    tree = laid(tmp_path)
    tree.failure.touch()
    assert write_failure(tree, "rank 0 ended with code 1")


def test_success_is_an_empty_file(tmp_path):
    tree = laid(tmp_path)
    assert write_success(tree)
    assert tree.success.read_bytes() == b""


def test_a_pipe_that_a_script_left_is_not_waited_for(tmp_path):
    tree = laid(tmp_path)
    for path in (tree.failure, tree.success):
        os.mkfifo(path)
    assert (read_failure(tree), write_failure(tree, "why"), write_success(tree)) == ("", False, False)


def test_a_tree_that_cannot_be_written_raises_nothing(tmp_path):
    tree = Tree(tmp_path / "none")
    assert not write_failure(tree, "why")
    assert not write_success(tree)
    assert read_failure(tree) == ""
    forget_outcome(tree)


def test_the_outcome_of_an_earlier_attempt_is_forgotten(tmp_path):
    tree = laid(tmp_path)
    write_failure(tree, "why")
    write_success(tree)
    forget_outcome(tree)
    assert not tree.failure.exists()
    assert not tree.success.exists()
