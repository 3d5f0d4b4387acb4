import os
import tarfile

from paceline.estimator import PyTorch

os.makedirs("out", exist_ok=True)
estimator = PyTorch(
    "tutorial.py",
    source_dir="code",
    role="x",
    instance_type="local",
    instance_count=1,
    output_path=os.path.abspath("out"),
    hyperparameters={"steps": 20},
    framework_version="2.6.0",
    py_version="py312",
)
estimator.fit()
found = []
for where, _, files in os.walk("out"):
    for file in files:
        if file.endswith(".tar.gz"):
            with tarfile.open(os.path.join(where, file)) as tar:
                found.append((file, [name for name in tar.getnames() if name.endswith(".pt")]))
print("archives:", sorted(found), flush=True)
