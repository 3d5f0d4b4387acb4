"""SageMaker as a place to run a job. Needs the extra [sagemaker]."""
