"""The SageMaker SDK's classes: Estimator, PyTorch, TensorFlow, ModelTrainer. Importing this package loads neither torch nor boto3."""

import sys

from paceline.parts.sagemaker.estimator import image_uris as image_uris
from paceline.parts.sagemaker.estimator import session
from paceline.parts.sagemaker.estimator.absent_names import refuse_absent
from paceline.parts.sagemaker.estimator.estimator import Estimator, PyTorch, TensorFlow
from paceline.parts.sagemaker.estimator.exceptions import CapacityError, TrainingTimeout, UnexpectedStatusException
from paceline.parts.sagemaker.estimator.inputs import FileSystemInput, TrainingInput
from paceline.parts.sagemaker.estimator.instances import InstanceGroup
from paceline.parts.sagemaker.estimator.model_trainer import ModelTrainer
from paceline.parts.sagemaker.estimator.model_trainer_parts import (
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
from paceline.parts.sagemaker.estimator.notebook import (
    Mode,
    S3Uploader,
    Session,
    TensorBoardOutputConfig,
    get_execution_role,
    name_from_base,
    unique_name_from_base,
)
from paceline.parts.sagemaker.estimator.training_job import TrainingJob

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
    "name_from_base",
    "unique_name_from_base",
]


# The module session has the name of the SDK's, and notebooks write sagemaker.session.Session.
vars(session)["Session"] = Session
# Rooms of the SDK whose names notebooks write in full, such as sagemaker.s3.S3Uploader. Here, this package has them all.
_ROOMS = ("debugger", "estimator", "exceptions", "inputs", "pytorch", "s3", "tensorflow", "utils")


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return sys.modules[__name__]
    refuse_absent(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
