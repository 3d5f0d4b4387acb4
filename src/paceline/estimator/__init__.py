"""The SageMaker SDK's classes: Estimator, PyTorch, TensorFlow, ModelTrainer. Importing this package loads neither torch nor boto3."""

from typing import NoReturn

from paceline.estimator import image_uris
from paceline.estimator.absent_names import refuse_absent
from paceline.estimator.estimator import Estimator, PyTorch, TensorFlow
from paceline.estimator.exceptions import CapacityError, TrainingTimeout, UnexpectedStatusException
from paceline.estimator.inputs import FileSystemInput, TrainingInput
from paceline.estimator.instances import InstanceGroup
from paceline.estimator.model_trainer import ModelTrainer
from paceline.estimator.model_trainer_parts import (
    MPI,
    CheckpointConfig,
    Compute,
    InputData,
    Networking,
    OutputDataConfig,
    SourceCode,
    StoppingCondition,
    Torchrun,
)
from paceline.estimator.notebook import Mode, S3Uploader, Session, TensorBoardOutputConfig, get_execution_role
from paceline.estimator.training_job import TrainingJob

__all__ = [
    "MPI",
    "CapacityError",
    "CheckpointConfig",
    "Compute",
    "Estimator",
    "FileSystemInput",
    "InputData",
    "InstanceGroup",
    "Mode",
    "ModelTrainer",
    "Networking",
    "OutputDataConfig",
    "PyTorch",
    "S3Uploader",
    "Session",
    "SourceCode",
    "StoppingCondition",
    "TensorBoardOutputConfig",
    "TensorFlow",
    "Torchrun",
    "TrainingInput",
    "TrainingJob",
    "TrainingTimeout",
    "UnexpectedStatusException",
    "get_execution_role",
    "image_uris",
]


def __getattr__(name: str) -> NoReturn:
    refuse_absent(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
