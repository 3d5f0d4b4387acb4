from paceline.estimator import PyTorch

est = PyTorch(
    "metrics.py",
    source_dir=".",
    role="x",
    instance_type="local",
    instance_count=1,
    framework_version="2.6.0",
    py_version="py312",
    metric_definitions=[
        {"Name": "from_stderr", "Regex": r"loss=([0-9.]+)"},
        {"Name": "wrong_case", "Regex": r"Accuracy ([0-9.]+)"},
        {"Name": "takes_name", "Regex": r"(accuracy [0-9.]+)"},
    ],
)
est.fit()
for row in est.training_job_analytics.metrics():
    print(row)
