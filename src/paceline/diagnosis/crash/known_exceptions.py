"""Exceptions whose text does not say what to do, with the reason and the way out: of torch, DDP and what is built on them. Pure.

Live runs and logs read the same table.
"""

import errno
import os
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownException:
    """One text of an exception, wherever it is raised."""

    pattern: re.Pattern[str]
    """What "TYPE: MESSAGE" matches."""
    way_out: str
    """What to do about it."""
    source: str
    """Where the text comes from."""
    no_line_at_fault: bool = False
    """No line of the script is at fault: what is installed or set up does not fit, or what the training computed is no number."""


def _known(pattern: str, way_out: str, source: str, no_line_at_fault: bool = False) -> KnownException:
    return KnownException(re.compile(pattern), way_out, source, no_line_at_fault)


_REDUCER = "torch/csrc/distributed/c10d/reducer.cpp"
KNOWN = (
    _known(
        r"modified by an inplace operation",
        "with DDP and two forward passes before one backward pass: DistributedDataParallel(..., broadcast_buffers=False), because each "
        "forward pass writes the buffers that the first one still needs; without DDP: torch.autograd.set_detect_anomaly(True)",
        "torch/csrc/autograd/saved_variable.cpp; pytorch/pytorch #22095, #110363",
    ),
    _known(
        r"Expected to mark a variable ready only once",
        "a parameter is used twice in one backward pass: use one forward pass for each backward pass, static_graph=True with "
        "activation checkpointing, or torch.utils.checkpoint(..., use_reentrant=False)",
        _REDUCER,
    ),
    _known(
        r"find_unused_parameters=True was specified in DDP constructor, but did not find any unused",
        "leave find_unused_parameters out: the search costs time in each step",
        _REDUCER,
    ),
    _known(
        r"DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient",
        "set requires_grad before the model is wrapped, or do not wrap it",
        "torch/nn/parallel/distributed.py",
    ),
    _known(
        r"grad(?:ient)?s? view|Grad strides do not match bucket view strides",
        "call .contiguous() on the gradient's layer, or make all ranks use one memory format",
        _REDUCER,
    ),
    _known(
        r"Default process group has not been initialized",
        "call torch.distributed.init_process_group before this line, on every rank; with smdistributed.dataparallel as a module, "
        "call its functions instead: torch.distributed has no group there",
        "torch/distributed/distributed_c10d.py",
    ),
    _known(
        r"trying to initialize the default process group twice",
        "call init_process_group once, or guard it with torch.distributed.is_initialized()",
        "torch/distributed/distributed_c10d.py",
    ),
    _known(
        r"Weights only load failed",
        "for a file that you trust: torch.load(..., weights_only=False), or torch.serialization.add_safe_globals with the names above; "
        "torch 2.6 made weights_only=True the default",
        "torch/serialization.py",
    ),
    _known(
        r"Error\(s\) in loading state_dict",
        'keys that differ by "module.": save model.module.state_dict() of a DDP model, or strip the prefix where it is loaded',
        "torch/nn/modules/module.py",
    ),
    _known(
        r"error: (?:the following arguments are required|unrecognized arguments):[^\n]{0,200}--local[-_]rank",
        'read it from the environment, os.environ["LOCAL_RANK"]: torchrun and paceline pass no such argument, and '
        "torch.distributed.launch spells it --local-rank since torch 2.0",
        "torch/distributed/launch.py",
    ),
    _known(
        r"You set `(?:devices|--devices)=\S+ and `num_nodes=\d+` in Lightning, but the product [^\n]{0,40}does not match the world size",
        "start as many ranks as the Trainer has devices: --nproc-per-node as large as devices=, --nnodes as num_nodes=; or write "
        "devices=1 for one rank",
        "lightning/fabric/plugins/environments/torchelastic.py, validate_settings",
    ),
    _known(
        r"\A(?:ConnectionResetError|ConnectionAbortedError|ConnectionRefusedError|TimeoutError)\b(?!: \[Errno)",
        "where it may pass by itself: --max-restarts 3, and load the newest checkpoint; without it a failed job is not started again",
        "OSError's subclasses for connections; torch/distributed/run.py, --max-restarts",
    ),
    _known(
        r"\AKeyError: '?SM_CHANNEL_",
        "the job has no channel of that name: fit({'train': ADDRESS}) makes SM_CHANNEL_TRAIN, and one address alone is the channel "
        "training; of paceline run, --channel train=DIRECTORY",
        "sagemaker-python-sdk v2, inputs given to fit(); aws/amazon-sagemaker-examples #418",
    ),
    _known(
        r"error: argument [^\n]{1,80}: invalid (?:json\.)?loads value",
        "a list or dict among the hyperparameters arrives as Python writes it, in single quotes: type=ast.literal_eval, or read it "
        "as JSON from os.environ['SM_HPS']",
        "sagemaker-training toolkit, mapping.to_cmd_args, str()",
    ),
    _known(
        r"\[Errno (?:17|39)\]",
        "where several ranks do this to one path, let one rank do it, the others after a barrier",
        "errno(3), EEXIST, ENOTEMPTY; huggingface/transformers #36076",
    ),
    _known(
        r"Collective ops must be configured at program startup",
        "make the strategy before any other call of TensorFlow",
        "tensorflow/python/eager/context.py",
    ),
    _known(
        r"CUDA version [^\n]{0,40}(?:does not match|mismatches) the version",
        "install a torch that was built for the CUDA toolkit of this machine, or set CUDA_HOME to a toolkit of torch's version "
        "(python -c 'import torch; print(torch.version.cuda)' beside nvcc --version)",
        "deepspeed/ops/op_builder/builder.py; torch/utils/cpp_extension.py; deepspeedai/DeepSpeed #1077",
        no_line_at_fault=True,
    ),
    _known(
        r"instance_type \S+ is not supported by (?:smdataparallel|smdistributed)",
        "paceline plan --instances --for smddp lists the types that SMDDP serves, with the reasons; on any other type: "
        "distribution={'torch_distributed': {'enabled': True}}",
        "sagemaker-python-sdk v2, fw_utils.validate_smdistributed",
        no_line_at_fault=True,
    ),
    _known(
        # `paceline sagemaker-local` has a limit of its own, and names its option.
        r"account-level service limit(?![^\n]{0,300}--max-hosts)",
        "ask for a quota: the console's Service Quotas, Amazon SageMaker, the line that the message names; or aws service-quotas "
        "list-service-quotas --service-code sagemaker for its code, then aws service-quotas request-service-quota-increase "
        "--service-code sagemaker --quota-code CODE --desired-value N. Spot and on-demand have quotas of their own",
        "SageMaker API, CreateTrainingJob, ResourceLimitExceeded",
        no_line_at_fault=True,
    ),
    _known(
        r"No module named '?smdistributed",
        "this image has no SMDDP, which is in SageMaker's own images alone: under `paceline run` the import works, and with "
        "torch.distributed init_process_group('nccl') needs none",
        "AWS, SageMaker distributed data parallel library; aws/deep-learning-containers",
        no_line_at_fault=True,
    ),
    _known(
        r"(?i:(?:invalid backend|unknown c10d backend type)[^\n]{0,20}smddp)",
        "import smdistributed.dataparallel.torch.torch_smddp before init_process_group: the import makes the backend known; under "
        "`paceline run` it is known without; where the image has no SMDDP, init_process_group('nccl')",
        "AWS, SMDDP 1.4 and later; torch/distributed/distributed_c10d.py",
    ),
    _known(
        r"torch_smddp\S*\.so: undefined symbol",
        "SMDDP of this image was built for its own torch, and another one was installed over it: leave torch out of requirements.txt",
        "AWS, SMDDP release notes: one build for each release of torch",
        no_line_at_fault=True,
    ),
    _known(
        r"module '(?:smdistributed[\w.]*|torch\.distributed)' has no attribute '\w+'",
        "that name is of another release, or of none: paceline check SCRIPT says which one is meant (K10), torch.__version__ what is here",
        "AWS, SMDDP 1.0 to 1.4, API documents",
    ),
    _known(
        r"(?<!smddp\.so: )undefined symbol: |cannot open shared object file|version `GLIBC\w*_[\d.]+' not found",
        "an extension was built for another torch, CUDA or system: install one built for these, or build it again",
        "ld.so(8)",
        no_line_at_fault=True,
    ),
    _known(
        r"can't create new processes if CUDA is already initialized|Cannot re-initialize CUDA in forked subprocess",
        "call nothing of torch.cuda, and move nothing to a GPU, before the processes are made",
        "lightning/fabric/strategies/launchers/multiprocessing.py; torch/cuda/__init__.py",
    ),
    _known(
        r"No CUDA GPUs are available|Found no NVIDIA driver|CUDA driver initialization failed|Failed to initialize NVML",
        "nvidia-smi, there: without an answer it is the driver, or what the container was given (--gpus, nvidia.com/gpu, "
        "CUDA_VISIBLE_DEVICES). NVML: Unknown Error in a container that had its GPUs before: systemctl daemon-reload on the host took "
        "them from its cgroup, and a new container gets them back",
        "torch/cuda/__init__.py; NVIDIA container toolkit, troubleshooting",
        no_line_at_fault=True,
    ),
    _known(
        r"[Ee]rror 802\b|system not yet initialized",
        "the switch between the GPUs is not set up: systemctl status nvidia-fabricmanager, of the driver's own release, on that host",
        "cudaErrorSystemNotReady; NVIDIA, Fabric Manager user guide",
        no_line_at_fault=True,
    ),
    _known(
        r"Unexpected error from cudaGetDeviceCount|[Ee]rror 80[34]\b|unsupported display driver|CUDA-capable device\(s\) is/are busy",
        "nvidia-smi, on that host: CUDA itself does not start, so the driver, its libraries or another process is at fault",
        "c10/cuda/CUDAFunctions.cpp; CUDA runtime API, error codes",
        no_line_at_fault=True,
    ),
    _known(
        r"Stale file handle|\[Errno 116\]",
        "a file on a network file system was replaced while it was used: caches that ranks write belong in a directory local to each node "
        "(TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, TORCH_EXTENSIONS_DIR=/tmp/...)",
        "errno(3), ESTALE; triton, runtime/cache.py",
        no_line_at_fault=True,
    ),
    _known(
        r"Parent directory \S+ does not exist",
        "make the directory on every rank, os.makedirs(path, exist_ok=True), or let one rank make it and the others pass a barrier first",
        "torch/csrc/inline_container.cc",
    ),
    _known(
        r"unable to lock file",
        "open it for reading, h5py.File(path, 'r'), which h5py before 3.0 does not do by itself; where several must write, one after "
        "the other; HDF5_USE_FILE_LOCKING=FALSE if the file system has no locks",
        "HDF5, H5FDsec2.c; h5py, what's new in 3.0",
    ),
    _known(
        r"[Ll]oss scale (?:already at minimum|is already)|Minimum loss scale reached|[Ll]oss scal\w+ [^\n]{0,40}(?:below|underflow)",
        "the gradients overflow in fp16 (inf or NaN) at every step: train in bf16, which needs no loss scale, or with a lower learning "
        "rate and clipped gradients",
        "deepspeed/runtime/fp16/loss_scaler.py; fairseq, dynamic_loss_scaler.py",
        no_line_at_fault=True,
    ),
    _known(
        r"Version mismatch: The cluster was started with",
        "start the cluster and the driver from one environment or image: the same Ray and the same Python on both sides",
        "ray/_private/utils.py, check_version_info",
        no_line_at_fault=True,
    ),
)


# Errors of devices, file systems and the network, by their numbers and by the words for them. Source: errno(3)
_OF_THE_MACHINE = (
    errno.EIO, errno.ENXIO, errno.ENODEV, errno.EROFS, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.ECONNABORTED,
    errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ESTALE,
    errno.EREMOTEIO,
)  # fmt: skip
_MACHINES_WORDS = re.compile(
    rf"\[Errno (?:{'|'.join(map(str, _OF_THE_MACHINE))})\]|"
    + "|".join(re.escape(os.strerror(number)) for number in _OF_THE_MACHINE)
)


def no_line_at_fault(said: str) -> bool:
    """Whether an exception tells of the machine, of what is installed or of numbers, wherever it was raised. `said`: "TYPE: MESSAGE"."""
    known = any(known.no_line_at_fault and known.pattern.search(said) for known in KNOWN)
    return known or _MACHINES_WORDS.search(said) is not None


_LOOK_THERE = "what the message names, on that host: the service, the file system, the network or the device; the script's line only met it"
NOT_OF_THE_SCRIPT = "an error that no line of the script explains"


def ways_out(said: str) -> tuple[str, ...]:
    """What to do about an exception that is known, or that no line of the script explains. `said`: "TYPE: MESSAGE", whole."""
    known = tuple(known.way_out for known in KNOWN if known.pattern.search(said))
    return known or ((_LOOK_THERE,) if no_line_at_fault(said) else ())
