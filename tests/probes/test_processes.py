import os
import subprocess
import sys

import pytest

from paceline.probes.processes import ProcessTree, parse_stat, read_stat


def test_a_name_with_spaces_and_parentheses_hides_nothing(recorded):
    found = parse_stat(recorded("process_stat_awkward_name"))
    assert (found.pid, found.parent, found.state, found.threads, found.start_ticks) == (13048, 12946, "S", 1, 187576)
    assert found.resident_bytes == 445 * os.sysconf("SC_PAGE_SIZE")


def test_a_running_process_is_read(recorded):
    assert parse_stat(recorded("process_stat")).state == "R"
    own = read_stat(os.getpid())
    assert (own.pid, own.parent) == (os.getpid(), os.getppid())
    assert own.resident_bytes > 1_000_000


def test_a_process_that_is_gone_is_none():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert read_stat(child.pid) is None


@pytest.mark.process
def test_everything_below_a_rank_belongs_to_it_also_after_its_parent_died():
    # A rank that starts a child that starts a grandchild; the child then ends and the grandchild goes on.
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import subprocess; "
        'p = subprocess.Popen(["sleep", "60"]); print(p.pid, flush=True); input()\'],'
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
        "print(child.pid, child.stdout.readline().strip(), flush=True)\n"
        "input(); child.communicate('\\n'); print('gone', flush=True); input()\n"
    )
    rank = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        child, grandchild = (int(word) for word in rank.stdout.readline().split())
        tree = ProcessTree()
        tree.refresh()
        assert sorted(tree.descendants([rank.pid])[rank.pid]) == sorted([child, grandchild])
        assert tree.descendants([rank.pid, child]) == {rank.pid: [], child: [grandchild]}
        os.kill(child, 9)
        # The dead child's pipe stays open in the grandchild, so its end is looked for in /proc.
        while (found := read_stat(child)) is not None and found.state != "Z":
            pass
        tree.refresh()
        assert grandchild in tree.descendants([rank.pid])[rank.pid]
    finally:
        os.kill(grandchild, 9)
        rank.kill()
        rank.communicate()
