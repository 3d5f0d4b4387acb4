"""What to do about a script whose exception says that it was written for another Keras or TensorFlow than is installed. Pure."""

import re

from paceline.facts import RankError

_KERAS_2 = "the script is written for Keras 2: pip install --no-deps tf-keras, then TF_USE_LEGACY_KERAS=1 before TensorFlow is imported"
# What the exception's text or line has -> what to do.
#
# Source:  measured with TensorFlow 2.21 and Keras 3.15; keras-team/keras #20585, tensorflow/tensorflow #72388
_SIGNS = (
    (
        re.compile(r"Attempt to convert a value \(PerReplica"),
        "fit of Keras 3 fails under MultiWorkerMirroredStrategy (keras#20585): TF_USE_LEGACY_KERAS=1 with tf-keras, or the "
        "DistributedOptimizer of smdistributed.dataparallel.tensorflow.keras and no strategy",
    ),
    (
        re.compile(
            r"unexpected keyword argument 'experimental_run_tf_function'"
            r"|has no attribute '(?:fit|evaluate|predict)_generator'|has no attribute 'predict_(?:classes|proba)'"
            r"|Argument\(s\) not recognized: \{'(?:lr|decay)'|Invalid filepath extension for saving"
        ),
        _KERAS_2,
    ),
    (re.compile(r"'list' object is not callable(?s:.*)\.variables\(\)"), _KERAS_2),
    (
        re.compile(r"module 'tensorflow' has no attribute 'estimator'"),
        "tf.estimator is gone since TensorFlow 2.16: train with fit of Keras, or install tensorflow==2.15.*",
    ),
)


def other_release(error: RankError | None) -> str:
    """What to do; "" for every other exception."""
    if error is None:
        return ""
    text = f"{error.message}\n{error.source or ''}"
    return next((advice for pattern, advice in _SIGNS if pattern.search(text)), "")
