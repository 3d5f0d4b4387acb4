"""The digits of digits_ddp.py through the API of the SageMaker SDK, on two hosts of this machine.

python examples/estimator_digits.py
"""

from pathlib import Path

from paceline.estimator import PyTorch

estimator = PyTorch(
    entry_point="digits_ddp.py",
    source_dir=str(Path(__file__).parent),
    instance_type="local",
    instance_count=2,
    distribution={"torch_distributed": {"enabled": True}},
    hyperparameters={"epochs": 8},
    metric_definitions=[{"Name": "loss", "Regex": r"loss ([0-9.]+)"}],
    max_run=600,
)
estimator.fit()
print("loss of each epoch:", *(metric["value"] for metric in estimator.metrics()))
