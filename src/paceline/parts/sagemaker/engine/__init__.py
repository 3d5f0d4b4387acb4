"""The engine that runs a job on SageMaker. It needs the extra [sagemaker]."""
