"""Hands the fine-tuning to SageMaker, on spare capacity."""

from sagemaker.inputs import TrainingInput
from sagemaker.pytorch import PyTorch

HOURS = 3600

estimator = PyTorch(
    entry_point="finetune.py",
    source_dir="code",
    role="arn:aws:iam::000000000000:role/training",
    instance_type="ml.g5.2xlarge",
    instance_count=1,
    framework_version="2.6.0",
    py_version="py312",
    hyperparameters={"epochs": 40},
    use_spot_instances=True,
    max_run=48 * HOURS,
    max_wait=72 * HOURS,
    output_path="s3://a-bucket/models",
)
estimator.fit({"train": TrainingInput("s3://a-bucket/pairs")}, wait=False)
