"""A user's own modules with the names of the standard library's are the ranks' business: no agent takes them for its own."""

import os
import subprocess
import sys

import pytest

LOUD = "raise SystemExit('the user's own {} was imported')\n"
SCRIPT = "import os\nprint('trained', os.environ['RANK'])\n"


@pytest.mark.slow_but_first
@pytest.mark.parametrize("argv", [(), ("--local-hosts", "2")], ids=["one host", "two hosts"])
def test_modules_in_the_working_directory_do_not_reach_the_agents(paceline, argv):
    if argv and os.geteuid() != 0:
        pytest.skip("hosts of one machine need root")
    script = paceline.script("train.py", SCRIPT)
    elsewhere = paceline.directory / "work"
    elsewhere.mkdir()
    for name in ("selectors", "secrets", "token", "queue"):
        (elsewhere / f"{name}.py").write_text(LOUD.format(name))
    command = [sys.executable, "-P", "-m", "paceline", "run", *argv, "--nproc-per-node", "1", script]
    done = subprocess.run(command, cwd=elsewhere, env=paceline.environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert "was imported" not in done.stdout + done.stderr
