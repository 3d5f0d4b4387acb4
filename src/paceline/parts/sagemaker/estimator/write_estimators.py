"""Writes estimator.py from the table of arguments: `make docs` runs this module.

Editors and type checkers read source and run nothing, so the signatures must be in the source.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from paceline.parts.sagemaker.estimator.arguments import ARGUMENTS, BY_POSITION, Argument, arguments_of

_HEAD = '''"""Estimator, PyTorch and TensorFlow with the names, defaults and meaning of the SageMaker SDK's v2, over any engine.

Made by `make docs` from the table in arguments.py, by write_estimators.py. Change the table, not this file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.parts.sagemaker.estimator.estimator_base import EstimatorBase, with_declared_arguments
from paceline.parts.sagemaker.estimator.inputs import TrainingInput
from paceline.parts.sagemaker.estimator.instances import InstanceGroup


class SharedArguments(EstimatorBase):
    """The arguments that every estimator has, as attributes. `hyperparameters` is a method, as in v2."""
'''
_CLASSES = {
    "Estimator": '"""SDK v2\'s generic estimator: a script on hosts, started once on each."""',
    "PyTorch": '''"""SDK v2's estimator for PyTorch: `distribution` says how the ranks of a script start.

    >>> PyTorch("train.py", source_dir="src", instance_type="local", instance_count=2).fit("data")  # doctest: +SKIP
    """''',
    "TensorFlow": '"""SDK v2\'s estimator for TensorFlow: one process on each host, which finds the others in TF_CONFIG."""',
}


def estimators_source() -> str:
    """The full text of estimator.py."""
    shared = _attributes(row for row in ARGUMENTS if not row.only)
    return "\n".join([_HEAD, *shared, *(line for name in _CLASSES for line in _class(name))]) + "\n"


def _class(name: str) -> Iterator[str]:
    rows = arguments_of(name)
    by_position = [rows[one] for one in BY_POSITION[name]]
    by_name = [row for row in rows.values() if row not in by_position]
    yield from ("", "", f"class {name}(SharedArguments):", f"    {_CLASSES[name]}", "")
    yield f'    _class_name = "{name}"'
    yield from _attributes(row for row in rows.values() if row.only)
    yield from ("", "    @with_declared_arguments", "    def __init__(", "        self,")
    yield from map(_parameter, by_position)
    yield "        *,"
    yield from map(_parameter, by_name)
    yield from (
        "    ) -> None:",
        '        """Every argument is given by name; those before the star also by position.',
        "",
        "        Args:",
    )
    yield from (f"            {row.name}: {row.why}" for row in (*by_position, *by_name))
    yield '        """'


def _attributes(rows: Iterable[Argument]) -> Iterator[str]:
    return (f"    {row.name}: {row.annotation}" for row in rows if row.name != "hyperparameters")


def _parameter(row: Argument) -> str:
    default = f'"{row.default}"' if isinstance(row.default, str) else repr(row.default)
    return f"        {row.name}: {row.annotation} = {default},"


if __name__ == "__main__":
    Path(__file__).with_name("estimator.py").write_text(estimators_source(), encoding="utf-8")
