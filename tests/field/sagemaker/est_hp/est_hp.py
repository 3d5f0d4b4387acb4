from paceline.estimator import PyTorch

PyTorch(
    "train.py",
    source_dir=".",
    role="x",
    instance_type="local",
    instance_count=1,
    framework_version="2.6.0",
    py_version="py312",
    hyperparameters={"epoch": 3, "train-batch_size": 64},
).fit()
