"""The SageMaker SDK's classes, and how a job of theirs is started. Their public names are in `paceline.estimator`."""
