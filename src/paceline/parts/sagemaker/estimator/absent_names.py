"""Names of the SageMaker SDK's training API that paceline does not have, and the reason that an import of each gives."""

from paceline.errors import UsageError

_SERVING = ("paceline trains and serves nothing", "leave it out; estimator.model_data is the location of the model")
_OTHER = ("paceline has estimators for PyTorch and TensorFlow", "Estimator(entry_point='train.py') starts any script")
_RECORDED = ("every run is recorded, and paceline top, why and plan read the recording", "leave it out")
_TUNING = ("paceline starts one job at a time", "call fit() in a loop")
_PROCESSING = ("a processing job is no training job", "Estimator(entry_point='prepare.py') starts any script")
_PIPELINE = ("a pipeline orders jobs of SageMaker alone", "call fit() of one estimator after the other")
_JUMPSTART = ("JumpStart's models are closed containers", "PyTorch(entry_point='train.py')")
_REASONS = {
    "DistributedConfig": (
        "a driver of your own is a program of SDK v3's containers",
        "SourceCode(command='python driver.py')",
    ),
    "HuggingFace": (
        "it is PyTorch in another image",
        "PyTorch(...) without transformers_version and pytorch_version; transformers in requirements.txt",
    ),
    "JumpStartConfig": ("JumpStart's models are closed containers", "SourceCode(entry_script='train.py')"),
    "TrainingQueue": ("a queue of AWS Batch starts jobs of SageMaker alone", "engine='slurm', which has queues"),
    "TrainingJobAnalytics": (
        "it reads metrics of CloudWatch, which only jobs of SageMaker have",
        "import paceline; paceline.runs()[0].evidence() has every number that a job recorded",
    ),
    **dict.fromkeys(
        ("HyperparameterTuner", "ContinuousParameter", "IntegerParameter", "CategoricalParameter", "WarmStartConfig"),
        _TUNING,
    ),
    **dict.fromkeys(
        ("Processor", "ScriptProcessor", "FrameworkProcessor", "PyTorchProcessor", "SKLearnProcessor"), _PROCESSING
    ),
    **dict.fromkeys(("Pipeline", "PipelineSession", "TrainingStep", "ProcessingStep"), _PIPELINE),
    **dict.fromkeys(("JumpStartEstimator", "JumpStartModel"), _JUMPSTART),
    **dict.fromkeys(("PyTorchModel", "TensorFlowModel", "Model", "ModelBuilder", "Predictor"), _SERVING),
    **dict.fromkeys(("MXNet", "Chainer", "SKLearn", "XGBoost", "RLEstimator"), _OTHER),
    **dict.fromkeys(
        ("ProfilerConfig", "FrameworkProfile", "DebuggerHookConfig", "CollectionConfig", "Rule", "ProfilerRule"),
        _RECORDED,
    ),
}


def refuse_absent(name: str) -> None:
    """Raises:  UsageError U32: the SDK has this name, and paceline does not, for a reason"""
    if name in _REASONS:
        why, instead = _REASONS[name]
        raise UsageError("U32", f"paceline.estimator has no {name}: {why}", saw=f"import {name}", next=instead)
