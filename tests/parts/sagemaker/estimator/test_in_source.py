"""Estimators in scripts and notebooks are found by their calls, and their jobs are checked as if they were submitted."""

import json

import pytest

from paceline.cli import main
from paceline.parts.sagemaker.estimator.in_source import SourceCell, cells_of, estimators_in, verdicts_of_estimator

SMDDP = "distribution={'smdistributed': {'dataparallel': {'enabled': True}}}"
VERSIONS = "framework_version='2.1', py_version='py310'"


def build(arguments, head="from sagemaker.pytorch import PyTorch\n"):
    return f"{head}PyTorch({arguments}).fit()\n"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind", "values", "unknown"),
    [
        ("from sagemaker.estimator import Estimator\ne = Estimator(entry_point='t.py', role=role())\n", "Estimator",
         {"entry_point": "t.py"}, ("role",)),
        ("import sagemaker.pytorch\nsagemaker.pytorch.PyTorch('t.py', instance_count=1 + 0)\n", "PyTorch", {"entry_point": "t.py"},
         ("instance_count",)),
        ("from sagemaker.tensorflow import TensorFlow as TF\nN = 2\nTF(instance_count=N, hyperparameters={'n': N})\n", "TensorFlow",
         {"instance_count": 2, "hyperparameters": {"n": 2}}, ()),
        ("from paceline.estimator import PyTorch\nn = 1\nn = 2\nPyTorch(instance_count=n, **more)\n", "PyTorch", {},
         ("instance_count", "**")),
        # A key that is no key, arguments behind a star, and those of a literal.
        ("from paceline.estimator import PyTorch\nPyTorch(hyperparameters={('a', 'b'): 1}, tags=['x'], image_uri={[]: 1})\n", "PyTorch",
         {"hyperparameters": {("a", "b"): 1}, "tags": ["x"]}, ("image_uri",)),
        ("from paceline.estimator import PyTorch\nPyTorch(*common, instance_count=1)\n", "PyTorch", {"instance_count": 1}, ("**",)),
        ("from paceline.estimator import PyTorch\nPyTorch(**{'instance_count': 1}, **{1: 2})\n", "PyTorch", {"instance_count": 1}, ("**",)),
    ],
)  # fmt: skip
def test_a_call_is_found_with_the_values_that_the_source_has(text, kind, values, unknown):
    (found,) = estimators_in([SourceCell("a.py", text)])
    assert (found.class_name, dict(found.values), found.unknown) == (kind, values, unknown)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n",
        "from mine import PyTorch\nPyTorch('t.py')\n",
        "from sagemaker.pytorch import PyTorch\n",
        "from sagemaker.pytorch import PyTorch\ndef PyTorch(*_): pass\nPyTorch('t.py')\n",
        "def broken(:\n",
    ],
)
def test_other_sources_build_none(text):
    assert estimators_in([SourceCell("a.py", text)]) == []


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        (f"entry_point='train.py', role='x', instance_count=2, instance_type='ml.p3dn.48xlarge', {VERSIONS}, {SMDDP}", {"U31", "K10"}),
        (f"entry_point='gone.py', role='x', instance_count=2, instance_type='ml.p4d.24xlarge', {VERSIONS}", {"U02", "K10"}),
        (f"entry_point='train.py', role='x', instance_count=2, instance_type='ml.g5.12xlarge', {VERSIONS}, {SMDDP}", {"K01", "K10"}),
        (f"entry_point='train.py', role='x', instance_count=2, instance_type='ml.m5.large', {VERSIONS}", {"K11", "K10"}),
    ],
)  # fmt: skip
def test_the_job_of_an_estimator_is_judged(project, arguments, codes):
    (found,) = estimators_in([SourceCell("a.py", build(arguments))])
    fired = {verdict.code for verdict in verdicts_of_estimator(found, project) if verdict.findings}
    assert codes <= fired


def test_an_argument_that_is_known_only_later_is_not_judged_and_not_refused(project):
    (found,) = estimators_in(
        [SourceCell("a.py", build("entry_point='train.py', role=ROLE, instance_count=2, instance_type=KIND"))]
    )
    verdicts = verdicts_of_estimator(found, project)
    assert any("instance_type" in verdict.missing for verdict in verdicts)
    assert not [verdict.code for verdict in verdicts if verdict.findings and verdict.code != "K10"]


def test_groups_of_machines_that_are_known_only_later_stand_in_place_of_a_type_and_a_number(project):
    (found,) = estimators_in(
        [SourceCell("a.py", build("entry_point='train.py', instance_groups=[InstanceGroup('a', KIND, 1)]"))]
    )
    assert not [
        verdict.code for verdict in verdicts_of_estimator(found, project) if verdict.findings and verdict.code != "K10"
    ]


def fired(text, directory):
    (found,) = estimators_in([SourceCell("a.py", text)])
    verdicts = verdicts_of_estimator(found, directory)
    return {verdict.code for verdict in verdicts if verdict.findings}, [v.missing for v in verdicts if v.missing]


V3 = (
    "from sagemaker.train import ModelTrainer\nfrom sagemaker.train.configs import Compute, SourceCode\n"
    "from sagemaker.train.distributed import Torchrun\n"
)


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        ("source_code=SourceCode(entry_script='train.py'), compute=Compute(instance_type='ml.p4d.24xlarge', instance_count=2), "
         "distributed=Torchrun()", set()),
        ("source_code=SourceCode(entry_script='train.py'), compute=Compute(instance_type='ml.p3dn.48xlarge')", {"U31"}),
        ("source_code=SourceCode(entry_script='gone.py'), compute=Compute(instance_type='ml.p4d.24xlarge')", {"U02"}),
        ("source_code=code, compute=cfg.Compute(instance_type='ml.m5.large', instance_count=2), distributed=Torchrun()", {"K01", "K11"}),
        ("source_code=code, distribution={}", {"U01"}),
    ],
)  # fmt: skip
def test_the_job_of_a_model_trainer_is_judged(project, arguments, codes):
    found, _ = fired(f"{V3}code = SourceCode(entry_script='train.py')\nModelTrainer({arguments}).train()\n", project)
    assert found == codes


@pytest.mark.parametrize(
    "argument", ["compute=Compute(instance_type=KIND)", "compute=compute()", "distributed=Torchrun(**more)", "**more"]
)
def test_a_part_of_a_model_trainer_that_is_known_only_later_is_not_its_default(project, argument):
    found, missing = fired(f"{V3}ModelTrainer(source_code=SourceCode(entry_script='train.py'), {argument})\n", project)
    assert found == set() and missing == [f"{argument.partition('=')[0].replace('**more', '**')} at a.py:4"]


def test_a_refusal_hides_no_missing_script(project):
    found, _ = fired(build("role='x', instance_count=1, instance_type='ml.p4d.24xlarge', subnets=['a']"), project)
    assert found == {"U31", "U02", "K10"}


def test_a_script_in_a_directory_that_is_known_only_later_is_not_missed(project):
    text = build(
        f"entry_point='gone.py', source_dir=CODE, role='x', instance_count=1, instance_type='ml.p4d.24xlarge', {VERSIONS}"
    )
    found, _ = fired(text, project)
    assert "U02" not in found


def test_a_distribution_for_gpus_on_a_type_without_one_is_a_warning(project):
    text = build(
        f"entry_point='train.py', role='x', instance_count=1, instance_type='ml.m5.large', {VERSIONS}, "
        "distribution={'torch_distributed': {'enabled': True}}"
    )
    found, _ = fired(text, project)
    assert "K01" in found


def notebook(*cells):
    return json.dumps(
        {"cells": [{"cell_type": kind, "source": source.splitlines(keepends=True)} for kind, source in cells]}
    )


def test_the_cells_of_a_notebook_are_one_source(project, capsys):
    (project / "nb.ipynb").write_text(
        notebook(
            ("markdown", "# Train"),
            ("code", "%matplotlib inline\n!pip install sagemaker\nfrom sagemaker.pytorch import PyTorch\nCOUNT = 2\n"),
            ("code", "%%bash\nls\n"),
            (
                "code",
                build(
                    "entry_point='gone.py', role='x', instance_count=COUNT, instance_type='ml.p4d.24xlarge'", head=""
                ),
            ),
        )
    )
    assert [cell.path for cell in cells_of(project / "nb.ipynb", "nb.ipynb")] == [
        "nb.ipynb cell 2",
        "nb.ipynb cell 3",
        "nb.ipynb cell 4",
    ]
    assert main(["check", "nb.ipynb"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("paceline  nb.ipynb cell 4:1 builds PyTorch(): its job is checked") and "error[U02]" in out


@pytest.mark.parametrize(
    "text", ["{}", "[]", "no json", notebook(("code", "import torch\n")), '{"cells": [{"cell_type": "code"}]}']
)
def test_a_notebook_that_builds_none_is_refused_and_never_found_healthy(project, capsys, text):
    (project / "nb.ipynb").write_text(text)
    assert main(["check", "nb.ipynb"]) == 2
    assert "error[U02]" in capsys.readouterr().err


def test_the_verb_checks_the_job_and_not_the_script_that_builds_it(project, capsys):
    (project / "submit.py").write_text(
        build(
            f"entry_point='train.py', role='x', instance_count=2, instance_type='ml.p3dn.48xlarge', {VERSIONS}, {SMDDP}"
        )
    )
    assert main(["check", "submit.py"]) == 1
    out = capsys.readouterr().out
    assert "submit.py:2 builds PyTorch(): its job is checked, and its script train.py" in out
    assert "ml.p3dn.24xlarge" in out and "from paceline.estimator import PyTorch" in out


def test_the_verb_names_the_script_of_a_model_trainer(project, capsys):
    (project / "submit.py").write_text(
        f"{V3}ModelTrainer(source_code=SourceCode(entry_script='train.py'), compute=Compute(instance_type='ml.p4d.24xlarge'))\n"
    )
    assert main(["check", "submit.py"]) == 0
    assert "submit.py:4 builds ModelTrainer(): its job is checked, and its script train.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    "before",
    [
        "if first:\n    !pip install sagemaker\n",
        "!pip install \\\n    sagemaker\n",
        "files = !ls\nfiles, more = %sx ls\n",
        "PyTorch?\n",
        "name = ('%s'\n    % 3)\n",
        "%%time\n",
    ],
)
def test_lines_of_ipython_hide_no_other_line_of_their_cell(project, before):
    (project / "nb.ipynb").write_text(notebook(("code", before + build("entry_point='t.py'"))))
    (found,) = estimators_in(cells_of(project / "nb.ipynb", "nb.ipynb"))
    assert found.place == f"nb.ipynb cell 1:{before.count(chr(10)) + 2}"
