"""K24: a path of SageMaker's containers in a job that has none."""

import pytest


@pytest.mark.parametrize(
    ("text", "next_step"),
    [
        ("data = open('/opt/ml/input/data/train/a.csv')", 'os.environ["SM_CHANNEL_TRAIN"]'),
        ("torch.save(model, '/opt/ml/model/model.pt')", 'os.environ["SM_MODEL_DIR"]'),
        ("parser.add_argument('--out', default='/opt/ml/output/data')", 'os.environ["SM_OUTPUT_DATA_DIR"]'),
        ("path = '/opt/ml/checkpoints/last.pt'", "--local-hosts 1 --set opt_ml=true, or a directory of your own"),
    ],
)
def test_such_a_path_is_named_with_what_holds_it(found, job, text, next_step):
    (finding,) = found("K24", job(text, engine="local"))
    assert finding.next == next_step and "/opt/ml/" in finding.what


@pytest.mark.parametrize(
    "text",
    [
        "import os\nout = os.environ.get('SM_MODEL_DIR', '/opt/ml/model')",
        "import os\nout = os.getenv('SM_MODEL_DIR', '/opt/ml/model')",
        "parser.add_argument('--data', default='/opt/ml/input/data/train')",
        "if path == '/opt/ml/model':\n    pass",
        "if path.startswith('/opt/ml/input'):\n    pass",
        "def train():\n    '/opt/ml/model is where it goes'",
        "print('/opt/mlflow')",
    ],
)
def test_a_spare_value_is_not_reported(found, job, text):
    assert not found("K24", job(text, arguments=("--data", "here")))


@pytest.mark.parametrize("fields", [{"engine": "sagemaker"}, {"has_opt_ml": True}])
def test_where_the_directory_is_it_may_be_named(found, job, fields):
    assert not found("K24", job("open('/opt/ml/input/data/train/a')", **fields))
