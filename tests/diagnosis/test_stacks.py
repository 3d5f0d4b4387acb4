import pytest

from paceline.diagnosis.stacks import OUR_EXCHANGE, is_own


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("worker/call_log.py", True),
        ("worker/instruments/ddp.py", True),
        ("parts/comm/instruments/exchanges.py", True),
        ("parts/comm/worker/gradients.py", True),
        ("parts/frameworks/instruments/tensorflow.py", True),
        ("parts/resume/worker/loops.py", True),
        ("parts/sagemaker/smdistributed/calls.py", True),
        # A rank that is in them takes part in an exchange.
        ("parts/comm/ddp/hook.py", False),
        ("parts/comm/backend/process_group.py", False),
    ],
)
def test_what_paceline_does_in_a_rank_is_its_own_except_the_exchange(file, own):
    path = f"/venv/lib/python3.11/site-packages/paceline/{file}"
    assert is_own(path) == own and (own or OUR_EXCHANGE in path)


def test_a_file_of_the_user_is_not():
    assert not is_own("/home/me/train.py") and not is_own("/home/me/parts/resume/worker/train.py")
