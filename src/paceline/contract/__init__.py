"""The SageMaker training contract on any machine: the /opt/ml tree, SM_* variables, hyperparameters, channels."""

from paceline.contract.prepare import Prepared, prepare_host

__all__ = ["Prepared", "prepare_host"]
