"""Texts that do not say what to do are known, with the way out; what is installed is no line of the script's."""

import pytest

from paceline.diagnosis.crash.known_exceptions import is_of_environment, ways_out


@pytest.mark.parametrize(
    ("said", "words", "of_environment"),
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
        ("train.py: error: the following arguments are required: --local_rank", 'os.environ["LOCAL_RANK"]', False),
        ("train.py: error: unrecognized arguments: --local-rank=0", 'os.environ["LOCAL_RANK"]', False),
    ],
)  # fmt: skip
def test_a_known_text_has_one_way_out(said, words, of_environment):
    (way,) = ways_out(said)
    assert words in way and is_of_environment(said) is of_environment


@pytest.mark.parametrize(
    "said",
    [
        "ModuleNotFoundError: No module named 'mine'",
        "AttributeError: module 'mine' has no attribute 'all_reduce_params'",
        "ValueError: Invalid backend: 'nccl2x'",
        "train.py: error: the following arguments are required: --data",
    ],
)
def test_another_text_has_none(said):
    assert ways_out(said) == ()
