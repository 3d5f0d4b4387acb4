"""metric_definitions: numbers from what the ranks printed."""

from paceline.parts.sagemaker.estimator.metrics import metric_rows

DEFINITIONS = [("loss", r"loss[ =]([0-9.eE+-]+)"), ("epoch", r"epoch (\d+)")]


def test_every_value_of_every_rank_is_found(recording):
    made = recording()
    made.log("algo-1", 0, b"epoch 1 loss=0.5\nnothing\nepoch 2 loss=1e-3\n")
    made.log("algo-2", 1, b"loss=0.7")
    rows = [(row["metric_name"], row["value"], row["rank"]) for row in metric_rows(made.path, DEFINITIONS)]
    assert sorted(rows) == [
        ("epoch", 1.0, 0),
        ("epoch", 2.0, 0),
        ("loss", 0.001, 0),
        ("loss", 0.5, 0),
        ("loss", 0.7, 1),
    ]


def test_what_matches_and_is_no_number_is_left_out(recording):
    made = recording()
    made.log("algo-1", 0, b"loss=.\nloss=0.5\n")
    assert [row["value"] for row in metric_rows(made.path, DEFINITIONS)] == [0.5]


def test_the_index_of_a_log_gives_the_times(recording):
    made = recording()
    path = made.log("algo-1", 0, b"loss=1\nloss=2\n")
    path.with_name(f"{path.name}.idx").write_text("1000000000 0\n3000000000 7\n")
    assert [(row["timestamp"], row["value"]) for row in metric_rows(made.path, DEFINITIONS)] == [(1.0, 1.0), (3.0, 2.0)]


def test_a_run_without_logs_has_no_metrics(recording):
    assert metric_rows(recording().path, DEFINITIONS) == []
