"""Texts that do not say what to do are known, with the way out; what is installed is no line of the script's."""

import os

import pytest

from paceline.diagnosis.crash.known_exceptions import no_line_at_fault, ways_out


@pytest.mark.parametrize(
    ("said", "words", "elsewhere"),
    [
        ("ValueError: Provided instance_type ml.g5.12xlarge is not supported by smdataparallel.", "--for smddp", True),
        ("ModuleNotFoundError: No module named 'smdistributed'", "this image has no SMDDP", True),
        ("ModuleNotFoundError: No module named 'smdistributed.dataparallel'", "this image has no SMDDP", True),
        ("ValueError: Invalid backend: 'smddp'", "torch_smddp before init_process_group", False),
        ("RuntimeError: Unknown c10d backend type SMDDP", "torch_smddp before init_process_group", False),
        ("ImportError: /opt/smdistributed/torch_smddp.so: undefined symbol: _ZN3c10", "leave torch out of requirements.txt", True),
        ("ImportError: /opt/flash_attn.so: undefined symbol: _ZN3c10", "an extension was built for another torch", True),
        ("AttributeError: module 'smdistributed.dataparallel.torch.distributed' has no attribute 'all_reduce_params'", "K10", False),
        ("AttributeError: module 'torch.distributed' has no attribute 'allreduce_params'", "K10", False),
        # torch 1.13 and later have it.
        ("AttributeError: module 'torch.distributed' has no attribute 'all_gather_into_tensor'", "of another release", False),
        ("UnpicklingError: Weights only load failed. Re-running `torch.load` with `weights_only` set", "weights_only=False", False),
        ("RuntimeError: No CUDA GPUs are available", "daemon-reload", True),
        ("RuntimeError: Found no NVIDIA driver on your system.", "nvidia-smi", True),
        ("RuntimeError: CUDA error: system not yet initialized", "nvidia-fabricmanager", True),
        ("OSError: [Errno 116] Stale file handle: '/home/me/.cache/x.so'", "local to each node", True),
        ("OSError: Unable to open file (unable to lock file, errno = 11, error message = 'x')", "h5py.File(path, 'r')", False),
        ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", "bf16", True),
        ("RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.9.0", "the same Ray", True),
        ("train.py: error: the following arguments are required: --local_rank", 'os.environ["LOCAL_RANK"]', False),
        ("KeyError: 'SM_CHANNEL_TRAIN'", "fit({'train': ADDRESS})", False),
        ("train.py: error: argument --layers: invalid loads value: \"['a']\"", "ast.literal_eval", False),
        ("ConnectionResetError: the store has closed the connection", "--max-restarts 3", False),
        ("TimeoutError: timed out", "--max-restarts 3", False),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "", True),
        ("ValueError: You set `devices=2` and `num_nodes=1` in Lightning, but the product (2 * 1) does not match the world size (1).",
         "--nproc-per-node as large as devices=", False),
        ("train.py: error: unrecognized arguments: --local-rank=0", 'os.environ["LOCAL_RANK"]', False),
    ],
)  # fmt: skip
def test_a_known_text_has_one_way_out(said, words, elsewhere):
    (way,) = ways_out(said)
    assert words in way and no_line_at_fault(said) is elsewhere


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'mine'",
        "AttributeError: module 'mine' has no attribute 'all_reduce_params'",
        "ValueError: Invalid backend: 'nccl2x'",
        "botocore.errorfactory.ResourceLimitExceeded: The account-level service limit 'ml.m5.large for training job usage' is 2 Instances, "
        "with current utilization of 0 Instances and a request delta of 3 Instances. Here it is the option --max-hosts.",
        # torch before 1.13, which does not know the argument.
        "TypeError: 'weights_only' is an invalid keyword argument for Unpickler()",
        "train.py: error: the following arguments are required: --data",
    ],
)
def test_another_text_has_none(said):
    assert ways_out(said) == ()


@pytest.mark.parametrize("number", (5, 30, 101, 104, 107, 110, 111, 113, 116, 121))
def test_an_error_of_a_device_a_file_system_or_the_network_is_no_lines_fault(number):
    assert no_line_at_fault(f"OSError: [Errno {number}] ...")
    assert no_line_at_fault(f"RuntimeError: cannot read: {os.strerror(number)}")


@pytest.mark.parametrize(
    "said",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'a'",
        "PermissionError: [Errno 13] Permission denied: 'a'",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 6x7)",
        "KeyError: 'input_ids'",
        "IsADirectoryError: [Errno 21] Is a directory: 'a'",
    ],
)
def test_what_a_line_asked_for_is_its_own(said):
    assert not no_line_at_fault(said)
