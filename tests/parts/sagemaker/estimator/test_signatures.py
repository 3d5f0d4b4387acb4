"""What editors, notebooks and type checkers see of the estimators: every argument with its default, in the source and at run time."""

import ast
import inspect

import pytest

from paceline import estimator as room
from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator.arguments import ARGUMENTS, BY_POSITION, Treatment, arguments_of
from paceline.parts.sagemaker.estimator.write_estimators import estimators_source

CLASSES = ("Estimator", "PyTorch", "TensorFlow")


def test_the_source_is_what_the_table_gives(repository):
    written = (repository / "src/paceline/parts/sagemaker/estimator/estimator.py").read_text()
    assert written == estimators_source(), "run `make docs`"


@pytest.mark.parametrize("name", CLASSES)
def test_a_signature_has_every_argument_with_its_default(name):
    shown = inspect.signature(getattr(room, name)).parameters
    rows = arguments_of(name)
    assert {one.name: one.default for one in shown.values()} == {row.name: row.default for row in rows.values()}


@pytest.mark.parametrize("name", CLASSES)
def test_a_signature_takes_by_position_what_v2_takes(name):
    shown = inspect.signature(getattr(room, name)).parameters.values()
    assert tuple(one.name for one in shown if one.kind is one.POSITIONAL_OR_KEYWORD) == BY_POSITION[name]
    assert all(one.kind is one.KEYWORD_ONLY for one in shown if one.name not in BY_POSITION[name])


@pytest.mark.parametrize("name", CLASSES)
def test_the_help_of_a_class_has_a_line_for_every_argument(name):
    text = getattr(room, name).__init__.__doc__
    assert not [row.name for row in arguments_of(name).values() if f"{row.name}: {row.why}" not in text]


def test_an_editor_that_only_reads_sees_the_arguments_and_the_attributes(repository):
    tree = ast.parse((repository / "src/paceline/parts/sagemaker/estimator/estimator.py").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    shared = attributes_in(classes["SharedArguments"])
    for name in CLASSES:
        (method,) = [node for node in classes[name].body if isinstance(node, ast.FunctionDef)]
        names = {one.arg for one in (*method.args.args, *method.args.kwonlyargs)} - {"self"}
        assert names == set(arguments_of(name))
        assert (shared | attributes_in(classes[name])) - {"_class_name"} == names - {"hyperparameters"}


def test_a_refused_argument_is_one_that_a_type_checker_refuses_too():
    refused = {row.name for row in ARGUMENTS if row.treatment is Treatment.REFUSED}
    assert {row.name for row in ARGUMENTS if row.annotation == "None"} == refused


def test_every_part_and_the_trainer_show_their_fields():
    assert inspect.signature(room.Compute).parameters["instance_count"].default == 1
    shown = inspect.signature(room.ModelTrainer).parameters
    assert shown["training_mode"].default == "SAGEMAKER_TRAINING_JOB"
    assert shown["raise_on_timeout"].default is True
    assert len(shown) == 23


def test_a_default_that_is_written_still_contradicts_its_old_name(make):
    with pytest.raises(UsageError, match="one argument"):
        make(max_run=86400, train_max_run=60)
    assert make(train_max_run=60).max_run == 60


def test_what_python_refuses_of_any_call_it_refuses_here():
    with pytest.raises(TypeError, match="too many positional"):
        room.Estimator("image", "role", 1, "local", "train.py")
    with pytest.raises(TypeError, match="multiple values"):
        room.PyTorch("train.py", entry_point="train.py")


def test_the_package_says_that_it_is_typed(repository):
    assert (repository / "src/paceline/py.typed").exists()


def attributes_in(node: ast.ClassDef) -> set[str]:
    return {one.target.id for one in node.body if isinstance(one, ast.AnnAssign)}
