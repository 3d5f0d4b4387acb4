"""What forbids to read a process, and the one command that would allow it."""

import os

import pytest

from paceline.attach.permission import Caller, explained, refusal_of

AGAIN = ["/venv/bin/paceline", "why", "4711"]


@pytest.mark.parametrize(
    ("caller", "owner", "saw", "next_"),
    [
        (Caller(user=1000, scope=1), 1000, "ptrace_scope is 1", "sudo /venv/bin/paceline why 4711; for every program"),
        (Caller(user=1000, scope=2), 1000, "ptrace_scope is 2", "sudo /venv/bin/paceline why 4711"),
        (Caller(user=1000, scope=0), 1001, "uid 1001, and this is uid 1000", "sudo /venv/bin/paceline why 4711"),
        (Caller(user=0, scope=0), 1001, "root without CAP_SYS_PTRACE", "docker run --cap-add SYS_PTRACE"),
        (
            Caller(user=1000, scope=0, is_in_container=True),
            1000,
            "container without",
            "docker run --cap-add SYS_PTRACE",
        ),
        (Caller(user=1000, scope=0), 1000, "more rights", "sudo /venv/bin/paceline why 4711"),
    ],
    ids=["scope 1", "scope 2", "another's", "root in a container", "user in a container", "set-uid"],
)
def test_each_rule_has_its_words_and_its_remedy(caller, owner, saw, next_):
    found = explained(caller, owner, AGAIN)
    assert saw in found.saw
    assert found.next.startswith(next_)
    assert found.without


def test_what_weakens_the_machine_comes_last_and_says_so():
    found = explained(Caller(user=1000, scope=1), 1000, AGAIN)
    assert found.next.index("sudo /venv") < found.next.index("for every program of this machine")
    assert "sysctl" not in explained(Caller(user=1000, scope=3), 1000, AGAIN).next


def test_a_process_that_may_be_read_is_not_refused():
    assert refusal_of(os.getpid(), AGAIN) is None


def test_a_process_that_is_gone_is_not_refused():
    assert refusal_of(2**22 + 1, AGAIN) is None
