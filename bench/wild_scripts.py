"""Public training scripts that run on CPUs, with the commands that run them here. None of their code is in this repository.

`repository` is the name on GitHub; its checkout is expected below the folder of checkouts as OWNER+NAME. `folder` is copied, so that
a checkout stays as it is, and is the working directory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wild_data import Maker, images, mnist, sentence_pairs, text, tiny_bert

LOSS = r"[Ll]oss[\w ]*[:=]?\s*(?:tensor\()?(-?\d+\.\d+(?:e[-+]?\d+)?)"


@dataclass(frozen=True, kw_only=True)
class Script:
    """One script. `argv`: from the script's name on. `needs`: modules that its environment must have.

    `steps`: optimizer steps of one rank, where they are known from the script and its data. `exchanges`: its ranks wait for each other.
    `loss`, `milliseconds`: patterns for what the script itself prints; an empty one: it prints none. `breakable`: the ranks are those
    that the launcher started. `true_findings`: codes that are no mistake about it. `note`: what a
    reader of the page should know besides.
    """

    name: str
    repository: str
    folder: str
    argv: tuple[str, ...]
    ranks: int = 2
    data: tuple[Maker, ...] = ()
    needs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    steps: int | None = None
    exchanges: bool = True
    has_loader: bool = True
    breakable: bool = True
    loss: str = LOSS
    milliseconds: str = ""
    true_findings: tuple[str, ...] = ()
    note: str = ""

    @property
    def command(self) -> str:
        return f"torchrun --nproc-per-node {self.ranks} {' '.join(self.argv)}"


def alone(**fields: object) -> Script:
    """One process that exchanges nothing."""
    return Script(ranks=1, exchanges=False, **fields)  # type: ignore[arg-type]


VISION = ("torchvision",)
FABRIC = {"LT_CLI_USED": "1", "LT_ACCELERATOR": "cpu", "LT_DEVICES": "2", "LT_STRATEGY": "ddp"}
BERT = (
    tiny_bert,
    sentence_pairs("tests/test_samples/MRPC/train.csv", "tests/test_samples/MRPC/dev.csv"),
)
ACCELERATE = {
    "repository": "huggingface/accelerate",
    "folder": "examples/by_feature",
    "data": BERT,
    "needs": ("accelerate", "transformers", "datasets", "evaluate"),
    "environment": {"TESTING_MOCKED_DATALOADERS": "1"},
}
EXAMPLES = {"repository": "pytorch/examples", "needs": VISION}
DIGITS = (mnist("../data"),)
TUTORIAL = {"repository": "yunjey/pytorch-tutorial", "needs": VISION, "data": (mnist("../../data", train=640),)}
SAGEMAKER = {
    "SM_HOSTS": '["algo-1"]',
    "SM_CURRENT_HOST": "algo-1",
    "SM_MODEL_DIR": ".",
    "SM_CHANNEL_TRAINING": "data",
    "SM_NUM_GPUS": "0",
}

SCRIPTS = (
    Script(
        name="aws_ddp",
        repository="aws-samples/awsome-distributed-training",
        folder="3.test_cases/pytorch/ddp",
        argv=("ddp.py", "--total_epochs", "3", "--save_every", "1", "--batch_size", "16"),
        data=(mnist("data", train=640),),
        needs=("torchvision", "mlflow"),
        steps=60,
        # It decodes and scales each digit in the process that trains, for a network that takes a millisecond.
        true_findings=("S05",),
    ),
    Script(
        name="dlrm",
        repository="facebookresearch/dlrm",
        folder=".",
        argv=(
            *("dlrm_s_pytorch.py", "--mini-batch-size=64", "--num-batches=300", "--data-generation=random"),
            *("--arch-embedding-size=200-200-200-200", "--arch-mlp-bot=4-32-16", "--arch-sparse-feature-size=16"),
            *("--arch-mlp-top=64-1", "--print-freq=10", "--dist-backend=gloo", "--print-time"),
        ),
        needs=("sklearn", "tensorboard"),
        steps=300,
        # It draws its batches in the process that trains.
        true_findings=("S05",),
        note="Its own time of a step is without the time for data.",
        milliseconds=r"(\d+\.\d+) ms/it",
    ),
    alone(
        name="timm_train",
        repository="huggingface/pytorch-image-models",
        folder=".",
        argv=(
            *("train.py", "--data-dir", "pictures", "--model", "resnet10t", "--batch-size", "4", "--epochs", "2"),
            *("--device", "cpu", "--num-classes", "2", "--workers", "1", "--img-size", "64", "--cooldown-epochs", "0"),
            *("--warmup-epochs", "0", "--log-interval", "4"),
        ),
        data=(images("pictures", splits=("train", "validation")),),
        needs=("torchvision", "yaml", "safetensors", "huggingface_hub"),
        steps=32,
        note="One rank: with several on CPUs it names the CPU as DDP's device, which torch refuses.",
    ),
    Script(
        name="fabric_image_classifier",
        repository="Lightning-AI/pytorch-lightning",
        folder="examples/fabric/image_classifier",
        argv=("train_fabric.py", "--epochs", "2", "--batch-size", "16"),
        data=(mnist("../../../Datasets", train=640),),
        needs=("torchvision", "lightning", "torchmetrics"),
        environment=FABRIC,
        steps=40,
    ),
    Script(
        name="lightning_autoencoder",
        repository="Lightning-AI/pytorch-lightning",
        folder="examples/pytorch/basics",
        argv=(
            *("autoencoder.py", "--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.strategy", "ddp"),
            *("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "24", "--data.batch_size", "8"),
            *("--trainer.limit_val_batches", "2", "--trainer.limit_test_batches", "2"),
            *("--trainer.limit_predict_batches", "2"),
        ),
        # It splits the digits into 55,000 and 5,000; Lightning itself looks for some in another place first.
        data=(mnist("../../Datasets", train=60_000), mnist("data")),
        needs=("torchvision", "lightning", "jsonargparse"),
        steps=24,
        loss="",
    ),
    Script(
        name="lightning_backbone_image_classifier",
        repository="Lightning-AI/pytorch-lightning",
        folder="examples/pytorch/basics",
        argv=(
            *("backbone_image_classifier.py", "--trainer.accelerator", "cpu", "--trainer.devices", "2"),
            *("--trainer.strategy", "ddp", "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "24"),
            *("--data.batch_size", "8", "--trainer.limit_val_batches", "2", "--trainer.limit_test_batches", "2"),
            *("--trainer.limit_predict_batches", "2"),
        ),
        data=(mnist("../../Datasets", train=60_000), mnist("data")),
        needs=("torchvision", "lightning", "jsonargparse"),
        steps=24,
        loss="",
    ),
    Script(
        name="fabric_kfold",
        repository="Lightning-AI/pytorch-lightning",
        folder="examples/fabric/kfold_cv",
        argv=("train_fabric.py", "--epochs", "1", "--batch-size", "16", "--folds", "2"),
        data=(mnist("../../../Datasets", train=640),),
        needs=("torchvision", "lightning", "torchmetrics", "sklearn"),
        environment=FABRIC,
        steps=20,
        note="Each of two folds has an optimizer of its own.",
    ),
    Script(
        name="accelerate_gradient_accumulation",
        argv=("gradient_accumulation.py", "--cpu"),
        loss="",
        steps=32,
        **ACCELERATE,  # type: ignore[arg-type]
    ),
    Script(
        name="accelerate_local_sgd",
        argv=("local_sgd.py", "--cpu"),
        loss="",
        steps=32,
        **ACCELERATE,  # type: ignore[arg-type]
    ),
    Script(
        name="accelerate_checkpointing",
        argv=("checkpointing.py", "--cpu"),
        loss="",
        steps=32,
        **ACCELERATE,  # type: ignore[arg-type]
    ),
    Script(
        name="accelerate_multi_process_metrics",
        argv=("multi_process_metrics.py", "--cpu"),
        loss="",
        steps=32,
        **ACCELERATE,  # type: ignore[arg-type]
    ),
    alone(
        name="open_clip_synthetic",
        repository="mlfoundations/open_clip",
        folder="src",
        argv=(
            *("-m", "open_clip_train.main", "--dataset-type", "synthetic", "--train-num-samples", "64"),
            *("--model", "RN50", "--batch-size", "2", "--epochs", "1", "--workers", "1", "--device", "cpu"),
            *("--precision", "fp32", "--dist-backend", "gloo", "--force-image-size", "32", "--log-every-n-steps", "4"),
        ),
        needs=("torchvision", "ftfy", "regex", "timm", "braceexpand", "webdataset"),
        loss=r"Contrastive_loss: (\d+\.\d+)",
        steps=32,
        note="One rank, as with timm_train.",
    ),
    alone(
        name="aws_sagemaker_mnist",
        repository="aws/amazon-sagemaker-examples",
        folder="      build_and_train_models/sm-hyperparameter_tuning_pytorch",
        argv=("mnist.py", "--epochs", "2", "--batch-size", "32", "--backend", "gloo"),
        data=(mnist("data"),),
        needs=VISION,
        environment=SAGEMAKER,
        steps=32,
    ),
    alone(
        name="kubeflow_mnist",
        repository="kubeflow/pytorch-operator",
        folder="examples/mnist",
        argv=("mnist.py", "--epochs", "2", "--batch-size", "32"),
        data=(mnist("../data", name="FashionMNIST"),),
        needs=("torchvision", "tensorboardX"),
        steps=32,
        true_findings=("S05",),
    ),
    alone(
        name="minGPT_adder",
        repository="karpathy/minGPT",
        folder=".",
        argv=("projects/adder/adder.py", "--trainer.max_iters=200", "--trainer.num_workers=1"),
        paths=(".",),
        steps=200,
        # One worker writes sums in Python for a small network: on a busy machine the network waits for it.
        true_findings=("S05",),
        milliseconds=r"iter_dt (\d+\.\d+)ms",
    ),
    alone(
        name="ddp_tutorial_cpu",
        repository="olehb/pytorch_ddp_tutorial",
        folder=".",
        argv=("ddp_tutorial_cpu.py",),
        data=(mnist("mnist_data", train=640),),
        needs=("torchvision", "tqdm"),
        steps=50,
        # It decodes and scales each digit in the process that trains.
        true_findings=("S05",),
    ),
    alone(
        name="ignite_mnist",
        repository="pytorch/ignite",
        folder="examples/mnist",
        argv=("mnist.py", "--epochs", "2", "--batch_size", "32"),
        data=(mnist("."),),
        needs=("torchvision", "ignite", "tqdm"),
        steps=32,
    ),
    alone(
        name="examples_mnist",
        folder="mnist",
        argv=("main.py", "--epochs", "2", "--batch-size", "32"),
        data=DIGITS,
        steps=32,
        **EXAMPLES,
    ),
    alone(
        name="examples_mnist_rnn",
        folder="mnist_rnn",
        argv=("main.py", "--epochs", "2", "--batch-size", "32"),
        data=DIGITS,
        steps=32,
        **EXAMPLES,
    ),
    alone(
        name="examples_vae",
        folder="vae",
        argv=("main.py", "--epochs", "2", "--batch-size", "32"),
        data=DIGITS,
        steps=32,
        **EXAMPLES,
    ),
    alone(
        name="examples_siamese",
        folder="siamese_network",
        argv=("main.py", "--epochs", "1", "--batch-size", "64"),
        data=DIGITS,
        steps=8,
        **EXAMPLES,
    ),
    alone(
        name="examples_dcgan",
        folder="dcgan",
        argv=(
            *("main.py", "--dataset", "mnist", "--dataroot", "data", "--batchSize", "32", "--niter", "1"),
            *("--ngf", "8", "--ndf", "8", "--workers", "1", "--manualSeed", "1"),
        ),
        data=(mnist("data", train=256),),
        steps=8,
        loss=r"Loss_[DG]: (\d+\.\d+)",
        **EXAMPLES,
    ),
    alone(
        name="examples_word_language_model",
        folder="word_language_model",
        argv=(
            *("main.py", "--data", "text", "--epochs", "2", "--emsize", "32", "--nhid", "32", "--log-interval", "10"),
            "--use-optimizer",
        ),
        data=(text("text/train.txt", "text/valid.txt", "text/test.txt", lines=4000),),
        has_loader=False,
        steps=150,
        milliseconds=r"ms/batch\s+(\d+\.\d+)",
        **EXAMPLES,
    ),
    alone(
        name="tutorial_feedforward",
        folder="tutorials/01-basics/feedforward_neural_network",
        argv=("main.py",),
        steps=35,
        **TUTORIAL,
    ),
    alone(
        name="tutorial_cnn",
        folder="tutorials/02-intermediate/convolutional_neural_network",
        argv=("main.py",),
        steps=35,
        **TUTORIAL,
    ),
    alone(
        name="tutorial_rnn",
        folder="tutorials/02-intermediate/recurrent_neural_network",
        argv=("main.py",),
        steps=14,
        **TUTORIAL,
    ),
    alone(
        name="tutorial_vae",
        folder="tutorials/03-advanced/variational_autoencoder",
        argv=("main.py",),
        steps=75,
        # As ddp_tutorial_cpu.
        true_findings=("S05",),
        **TUTORIAL,
    ),
)
