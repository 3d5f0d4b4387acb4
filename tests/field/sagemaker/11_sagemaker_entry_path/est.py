from paceline.estimator import PyTorch

est = PyTorch(
    "src/train.py",
    source_dir="repo",
    role="x",
    instance_type="local",
    instance_count=1,
    framework_version="2.6.0",
    py_version="py312",
)
est.fit()
