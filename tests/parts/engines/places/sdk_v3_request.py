"""Sends the request of the real SageMaker SDK v3: `sdk_v3_request.py SOURCE_DIR BASE_NAME HOSTS`. Run by the Python that has that SDK.

Everything else is in AWS's own variables. Prints the job's name.
"""

import sys

import boto3
from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, OutputDataConfig, SourceCode, StoppingCondition
from sagemaker.train.distributed import Torchrun

source, base_name, hosts = sys.argv[1:]
trainer = ModelTrainer(
    training_image="an-image",
    role="arn:aws:iam::000000000000:role/training",
    sagemaker_session=Session(boto_session=boto3.Session(), default_bucket="jobs"),
    base_job_name=base_name,
    source_code=SourceCode(source_dir=source, entry_script="train.py"),
    compute=Compute(instance_type="ml.m5.xlarge", instance_count=int(hosts)),
    distributed=Torchrun(process_count_per_node=1),
    hyperparameters={"epochs": 2},
    output_data_config=OutputDataConfig(s3_output_path="s3://jobs/out"),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=300),
)
trainer.train(wait=False)
print(trainer._latest_training_job.training_job_name)
