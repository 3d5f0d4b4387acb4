"""What a job that ended well was asked to keep and has nothing of is said when it ends."""

from types import SimpleNamespace

import pytest

from paceline.parts.sagemaker.estimator import unused
from paceline.parts.sagemaker.estimator.unused import metrics_without_value, nothing_kept


@pytest.mark.parametrize(
    ("files", "checkpoints", "said"),
    [
        (["algo-1/ml/model/net.pt"], None, []),
        (["algo-2/ml/model/deep/net.pt", "algo-1/ml/code/train.py"], None, []),
        (["algo-1/ml/model/net.pt"], "s3://b/c", ["checkpoint_s3_uri stays empty"]),
        (["algo-1/ml/checkpoints/1.pt", "algo-1/ml/code/train.py"], "s3://b/c", ["the job leaves no model"]),
        (["algo-1/ml/code/train.py"], "s3://b/c", ["the job leaves no model", "checkpoint_s3_uri stays empty"]),
        # The trees are on other machines.
        (["algo-1/host.json"], "s3://b/c", []),
    ],
)
def test_a_model_and_checkpoints(files, checkpoints, said, tmp_path):
    for name in files:
        path = tmp_path / "hosts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    found = list(nothing_kept(SimpleNamespace(checkpoint_url=checkpoints), tmp_path))
    assert [text.partition(":")[0].removesuffix(":") for text in found] == said


LINES = (b"epoch 3: accuracy 0.91", b"loss=nan loss=0.25", b"")


@pytest.mark.parametrize(
    ("regex", "said"),
    [
        (r"accuracy ([0-9.]+)", None),
        (r"loss=([a-z0-9.]+)", None),
        (r"Accuracy ([0-9.]+)", "matched no line"),
        (r"(accuracy [0-9.]+)", "no number: 'accuracy 0.91'"),
        (r"accuracy [0-9.]+", "no number: 'accuracy 0.91'"),
        (r"loss=(x)?", "no number: ''"),
    ],
)
def test_a_metric_without_a_value(regex, said, tmp_path, monkeypatch):
    monkeypatch.setattr(unused, "chosen_lines", lambda *_: [(None, None, line) for line in LINES])
    found = list(metrics_without_value([("one", regex), ("other", r"(\d)")], tmp_path))
    assert found == [] if said is None else len(found) == 1 and found[0].startswith("metric one: ") and said in found[0]
