from paceline.estimator import PyTorch

PyTorch(
    "flag.py",
    source_dir=".",
    role="x",
    instance_type="local",
    instance_count=1,
    framework_version="2.6.0",
    py_version="py312",
    hyperparameters={"fp16": False, "shuffle": False},
).fit()
