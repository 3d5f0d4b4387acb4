import os

from paceline.estimator import PyTorch

os.makedirs("kept", exist_ok=True)
estimator = PyTorch(
    "train.py",
    source_dir="code",
    role="x",
    instance_type="local",
    instance_count=1,
    checkpoint_s3_uri=os.path.abspath("kept"),
    hyperparameters={"epochs": 4},
    framework_version="2.6.0",
    py_version="py312",
)
estimator.fit()
print("kept:", sorted(os.listdir("kept")))
