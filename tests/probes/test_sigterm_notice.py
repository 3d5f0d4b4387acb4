"""Who takes SIGTERM as a notice: told by the mapped libraries and the caught signals, from outside."""

import subprocess
import sys

import pytest

from paceline.probes.sigterm_notice import has_handler, parse_framework, takes_as_notice
from paceline.probes.stacks import Frame, StackDump, ThreadStack

SITE = "7f2a 00:00 11 /opt/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("maps", "framework"),
    [
        (f"{SITE}/tensorflow/libtensorflow_framework.so.2\n", "TensorFlow"),
        (f"{SITE}/tensorflow/libtensorflow_cc.so.2\n", "TensorFlow"),
        (f"{SITE}/tensorflow/python/_pywrap_tensorflow_internal.so\n", "TensorFlow"),
        (f"{SITE}/jaxlib/libjax_common.so\n", "JAX"),
        (f"{SITE}/jaxlib/xla_extension.so\n", "JAX"),
        (f"{SITE}/torch/lib/libtorch_cpu.so\n", None),
        (f"{SITE}/tensorflow/libtensorflow_cc.so.2\n{SITE}/torch/lib/libtorch_cpu.so\n", None),
        (f"{SITE}/jaxlib/libjax_common.so\n{SITE}/torch/lib/libtorch.so\n", None),
        (f"{SITE}/my_tensorflow_notes/libother.so\n", None),
        ("", None),
    ],
)
def test_the_framework_is_told_by_its_library(maps, framework):
    assert parse_framework(maps) == framework


def test_a_process_without_a_handler_or_without_such_a_library_takes_no_notice(tmp_path):
    library = tmp_path / "tensorflow" / "libtensorflow_framework.so.2"
    library.parent.mkdir()
    library.write_bytes(b"\0" * 4096)
    program = """
import mmap, signal, sys
if "caught" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: None)
if "mapped" in sys.argv:
    file = open(sys.argv[1], "rb")
    kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.read()
"""
    found = {}
    for words in (("caught", "mapped"), ("caught",), ("mapped",)):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(library), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            found[words] = takes_as_notice(process.pid)
            process.communicate()
    assert found == {("caught", "mapped"): "TensorFlow", ("caught",): None, ("mapped",): None}


def test_of_a_process_that_is_gone_nothing_is_said():
    with subprocess.Popen(["true"]) as process:
        pass
    assert takes_as_notice(process.pid) is None


def thread(*frames):
    return ThreadStack(
        pid=1, thread="t", main=False, frames=tuple(Frame(file=file, line=1, function="f") for file in frames)
    )


def test_tensorflows_handler_is_told_by_its_threads():
    waits = "/env/lib/python3.11/site-packages/tensorflow/python/distribute/failure_handling/failure_handling.py"
    assert has_handler(StackDump(threads=(thread("train.py"), thread("threading.py", waits)))) is True
    assert has_handler(StackDump(threads=(thread("train.py"),))) is False
    assert has_handler(StackDump(reason="refused")) is None
