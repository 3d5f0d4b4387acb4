from paceline.estimator import PyTorch

estimator = PyTorch(
    "read.py",
    source_dir="code",
    role="x",
    instance_type="local",
    instance_count=1,
    framework_version="2.6.0",
    py_version="py312",
)
try:
    estimator.fit("digits")
except Exception as error:
    print(type(error).__name__, error)
    for name in ("saw", "next"):
        print("  ", name, "=", getattr(error, name, None))
