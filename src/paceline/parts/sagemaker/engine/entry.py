"""Becomes paceline's agent inside a SageMaker container. It is shipped as paceline_entry.py beside the job's code.

The image's training toolkit starts this script in the same way as a training script. Or SageMaker itself starts it as the container's
first process; then it must also unpack the archive. The image is not changed: paceline is unpacked beside the code, and its missing
dependencies are installed there too. The script uses the standard library only. Every Python from 3.8 can parse it, so that an old
Python can report that it is too old.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from typing import Any

JOB_FILE, TOKEN_FILE, ARCHIVE = "paceline_job.json", "paceline_token", "sourcedir.tar.gz"
AGENT_DIRECTORY = ".paceline_agent"
RECORDING = "paceline"
FAILURE_CHARACTERS = 1024
OLDEST = (3, 11)
# The agent cannot start without these packages. Without the others it measures or explains less.
_CANNOT_DO_WITHOUT = ("msgspec", "platformdirs")
_PR_SET_PDEATHSIG = 1
_PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class EntryRefused(Exception):
    """The agent cannot be started: what happened, what was seen, what to do."""

    def __init__(self, what: str, saw: str, next_step: str) -> None:
        super().__init__(what)
        self.text = f"error[E11]: {what}\n  saw       {saw}\n  next      {next_step}\n  more      paceline help E11\n"


def main() -> None:
    """Become the agent, or write the reason to output/failure and exit with 2."""
    if os.getpid() == 1:
        _be_first_process()
    base = os.environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml"
    try:
        _require_python(sys.version_info[:3])
        code = _code_directory(os.path.dirname(os.path.abspath(__file__)), base)
        with open(os.path.join(code, JOB_FILE), encoding="utf-8") as file:
            job = json.load(file)
        paths = _install(job, code)
        os.chdir(code)
        environment = _environment(dict(os.environ), paths, base)
        argv = _argv(job, code, base, by_toolkit=code == os.path.dirname(os.path.abspath(__file__)))
    except EntryRefused as refused:
        _leave_failure(base, refused.text)
        raise SystemExit(2) from None
    _end_with_parent()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-P", "-m", "paceline", *argv], environment)


def _require_python(version: tuple[int, ...]) -> None:
    if tuple(version[:2]) < OLDEST:
        raise EntryRefused(
            "this container's Python is too old for paceline: {}".format(".".join(map(str, version))),
            "{}; paceline needs {}.{} or newer".format(sys.executable, *OLDEST),
            "--option image=AN-IMAGE-WITH-PYTHON-3.11",
        )


def _code_directory(here: str, base: str) -> str:
    """The directory of the job's code. The code is unpacked now if this was not done yet."""
    if os.path.exists(os.path.join(here, JOB_FILE)):
        return here
    archive, code = os.path.join(here, ARCHIVE), os.path.join(base, "code")
    try:
        os.makedirs(code, exist_ok=True)
        with tarfile.open(archive, "r:gz") as content:
            if hasattr(tarfile, "data_filter"):
                content.extractall(code, filter="data")
            else:
                content.extractall(code)
    except (OSError, tarfile.TarError) as error:
        raise EntryRefused(
            "the job's code cannot be unpacked", str(error), "paceline submit --engine sagemaker ..."
        ) from error
    return code


def _install(job: dict[str, Any], code: str) -> list[str]:
    """The directories for PYTHONPATH: paceline's directory, and the directory of packages that the image lacks."""
    agent = os.path.join(code, AGENT_DIRECTORY)
    try:
        with zipfile.ZipFile(os.path.join(code, job["wheel"])) as wheel:
            wheel.extractall(agent)
    except (OSError, zipfile.BadZipFile) as error:
        raise EntryRefused("paceline itself cannot be unpacked", str(error), "df -h " + code) from error
    lacking = [text for text in _requirements(agent) if not _is_there(text)]
    if not lacking:
        return [agent]
    extra = os.path.join(agent, "needs")
    said = _pip_install(lacking, extra)
    if said:
        _judge_lack(lacking, said)
    return [agent, extra]


def _requirements(agent: str) -> list[str]:
    """paceline's requirements without extras, from its own metadata."""
    for info in sorted(os.listdir(agent)):
        if info.endswith(".dist-info"):
            with open(os.path.join(agent, info, "METADATA"), encoding="utf-8") as file:
                found = re.findall(r"^Requires-Dist: ([^;\n]+)$", file.read(), re.MULTILINE)
            return [text.strip() for text in found]
    return []


def _is_there(requirement: str) -> bool:
    name, _, least = requirement.partition(">=")
    try:
        return _numbers(importlib.metadata.version(name.strip())) >= _numbers(least)
    except importlib.metadata.PackageNotFoundError:
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(text) for text in re.findall(r"\d+", version.split("+")[0])[:3])


def _pip_install(requirements: list[str], target: str) -> str:
    """Install to a directory of our own. Returns "", or the end of pip's output if pip failed."""
    _say("installing {} for paceline's agent".format(", ".join(requirements)))
    argv = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
        "--retries",
        "1",
    ]
    argv += ["--timeout", "15", "--target", target, *requirements]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    return "\n".join(lines[-3:]) or f"pip ended with {done.returncode}" if done.returncode else ""


def _judge_lack(lacking: list[str], said: str) -> None:
    absent = [text for text in lacking if text.partition(">=")[0].strip() in _CANNOT_DO_WITHOUT]
    if absent:
        raise EntryRefused(
            "this image lacks {}, and it could not be installed".format(", ".join(absent)),
            said.replace("\n", " / "),
            "add it to the image, or allow the job to reach a package index: RUN pip install {}".format(
                " ".join(f"'{text}'" for text in absent)
            ),
        )
    _say("going on without {}: {}".format(", ".join(lacking), said.splitlines()[-1]))


def _environment(environment: dict[str, str], paths: list[str], base: str) -> dict[str, str]:
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([*paths, *([before] if before else [])])
    # Programs that were installed for the agent, such as py-spy, come after the image's programs.
    environment["PATH"] = os.pathsep.join(
        [environment.get("PATH", os.defpath), *(os.path.join(path, "bin") for path in paths[1:])]
    )
    interface = _interface(base)
    if interface:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setdefault(name, interface)
    return environment


def _interface(base: str) -> str | None:
    """The network interface to the other hosts. The host's own name may resolve to another interface."""
    try:
        with open(os.path.join(base, "input", "config", "resourceconfig.json"), encoding="utf-8") as file:
            resources = json.load(file)
    except (OSError, ValueError):
        return None
    name = resources.get("network_interface_name")
    several = len(resources.get("hosts", ())) > 1
    return name if several and name and os.path.exists(os.path.join("/sys/class/net", name)) else None


def _argv(job: dict[str, Any], code: str, base: str, by_toolkit: bool) -> list[str]:
    """Write the job file. Returns the arguments of `paceline`."""
    contract = job["job"]["job"].setdefault("contract", {})
    # The toolkit installs the job's requirements.txt itself.
    if not by_toolkit and os.path.exists(os.path.join(code, "requirements.txt")):
        contract.setdefault("code_dir", code)
    state = job["job"]["job"].get("state_dir") or ""
    if state.startswith("/opt/ml/"):
        job["job"]["job"]["state_dir"] = os.path.join(base, state[len("/opt/ml/") :])
    file = os.path.join(code, AGENT_DIRECTORY, "job.json")
    with open(file, "w", encoding="utf-8") as stream:
        json.dump(job["job"], stream)
    tree = "opt_ml=true" if base == "/opt/ml" else f"base_dir={base}"
    token = f"token_file={os.path.join(code, TOKEN_FILE)}"
    recording = os.path.join(base, "output", "data", RECORDING)
    return ["run", "--set", tree, "--run-dir", recording, "--set", token, "--job", file]


def _leave_failure(base: str, text: str) -> None:
    sys.stderr.write(text)
    try:
        os.makedirs(os.path.join(base, "output"), exist_ok=True)
        with open(os.path.join(base, "output", "failure"), "w", encoding="utf-8") as file:
            file.write(text[:FAILURE_CHARACTERS])
    except OSError as error:
        sys.stderr.write(f"output/failure cannot be written: {error}\n")


def _say(text: str) -> None:
    sys.stderr.write(f"paceline  {text}\n")
    sys.stderr.flush()


def _end_with_parent() -> None:
    """Let the kernel send SIGTERM to the agent when the toolkit ends: the toolkit does not pass on the SIGTERM that it gets."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _be_first_process() -> None:
    """Run the agent in a child, and be the container's first process: pass on signals, reap orphans, and exit as the child does.

    The kernel drops a signal for which the first process has no handler.
    """
    child = os.fork()
    if child == 0:
        return
    for name in _PASSED_ON:
        signal.signal(getattr(signal, name), lambda number, _: _pass_on(child, number))
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            os._exit(1)
        if pid == child:
            os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _pass_on(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main()
