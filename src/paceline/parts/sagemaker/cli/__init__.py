"""The verb `paceline sagemaker-local`."""
