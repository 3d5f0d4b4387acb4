from paceline.estimator import PyTorch

estimator = PyTorch(
    "build.py",
    source_dir="code",
    role="x",
    instance_type="local",
    instance_count=1,
    framework_version="2.6.0",
    py_version="py312",
    hyperparameters={"layers": ["relu", "dense"], "widths": [12, 4], "rate": 0.05},
)
try:
    estimator.fit()
except Exception as error:
    print(type(error).__name__, error)
    for name in ("saw", "next"):
        print("  ", name, "=", getattr(error, name, None))
