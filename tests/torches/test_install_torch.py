"""What is installed of a torch, and that its stand-in satisfies the linker."""

import ctypes
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from install_torch import (
    REPOSITORY,
    main,
    missing,
    nodes,
    paceline_requirements,
    python_of,
    requirements_of,
    small_cuda,
    stand_in,
    stand_in_source,
    without_cuda,
)

OLD = [
    "filelock",
    "typing-extensions (>=4.8.0)",
    'nvidia-cublas-cu12 (==12.1.3.1) ; platform_system == "Linux"',
    'nvidia-cuda-cupti-cu12 (==12.1.105) ; platform_system == "Linux"',
    'nvidia-cuda-nvrtc-cu12 (==12.1.105) ; platform_system == "Linux"',
    'nvidia-cuda-runtime-cu12 (==12.1.105) ; platform_system == "Linux"',
    'nvidia-nvtx-cu12 (==12.1.105) ; platform_system == "Linux"',
    'triton (==3.0.0) ; platform_system == "Linux"',
    "optree (>=0.11.0) ; extra == 'optree'",
]
NEW = [
    "filelock",
    'cuda-toolkit[cublas,cudart,cufft,cupti,nvrtc,nvtx]==13.0.3; platform_system == "Linux"',
    'cuda-bindings<14,>=13.0.3; platform_system == "Linux"',
    'nvidia-nccl-cu13==2.29.7; platform_system == "Linux"',
    'pyyaml; extra == "pyyaml"',
]


def test_of_the_cuda_libraries_only_the_small_ones_that_torch_calls_are_installed():
    assert without_cuda(OLD) == OLD[:2]
    assert small_cuda(OLD) == [OLD[3], OLD[5], OLD[6]]


def test_parts_of_the_toolkit_are_its_extras():
    assert without_cuda(NEW) == NEW[:1]
    assert small_cuda(NEW) == ['cuda-toolkit[cudart,cupti,nvtx]==13.0.3; platform_system == "Linux"']


def test_paceline_itself_is_not_among_what_is_installed():
    names = paceline_requirements(REPOSITORY / "pyproject.toml")
    assert any(name.startswith("msgspec") for name in names) and any(
        name.startswith("pytest-timeout") for name in names
    )
    assert not any(name.startswith(("paceline", "torch")) for name in names)


def test_requirements_are_read_from_the_wheel(tmp_path):
    wheel = tmp_path / "torch-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/x.dist-info/METADATA", "Requires-Dist: other\n")
        archive.writestr(
            "torch-9.9.dist-info/METADATA", "Name: torch\nRequires-Dist: filelock\nRequires-Dist: jinja2\n"
        )
    assert requirements_of(wheel) == ["filelock", "jinja2"]


def test_what_the_linker_misses_is_read_once_each_and_python_is_no_library():
    told = (
        "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibcudnn.so.9 => not found\n\tlibm.so.6 => /lib/libm.so.6 (0x00007f)\n"
        "\tlibcudnn.so.9 => not found\n\tlibcublas.so.12 => not found\n"
        "undefined symbol: cudnnCreate, version libcudnn.so.9\t(/x/libtorch_cuda.so)\n"
        "undefined symbol: cudnnCreate, version libcudnn.so.9\t(/x/libtorch_python.so)\n"
        "undefined symbol: ncclSend\t(/x/libtorch_cuda.so)\n"
        "undefined symbol: PyObject_Call\t(/x/libtorch_python.so)\nundefined symbol: _Py_NoneStruct\t(/x/libtorch_python.so)\n"
    )
    absent, symbols = missing(told)
    assert absent == ["libcublas.so.12", "libcudnn.so.9"]
    assert symbols == ["cudnnCreate", "ncclSend"]


def test_a_symbol_is_put_into_the_version_node_that_it_is_bound_to():
    told = "\nlibtorch_cuda.so:\n                 U cudnnCreate@libcudnn.so.9\n                 U ncclSend\n                 w weak@X\n"
    assert nodes(told) == {"cudnnCreate": "libcudnn.so.9"}
    source, script = stand_in_source({"cudnnCreate": "libcudnn.so.9", "ncclSend": ""})
    assert source.splitlines()[1:] == ["void cudnnCreate(void) { abort(); }", "void ncclSend(void) { abort(); }"]
    assert script == "libcudnn.so.9 { cudnnCreate; };\n"


def test_an_environment_without_its_stamp_is_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PACELINE_TORCHES", str(tmp_path))
    (tmp_path / "2.8.0" / "bin").mkdir(parents=True)
    assert python_of("2.8.0") is None
    (tmp_path / "2.8.0" / "READY").touch()
    assert python_of("2.8.0") == tmp_path / "2.8.0" / "bin" / "python"
    assert main(["2.8.0"]) == 0 and str(tmp_path / "2.8.0") in capsys.readouterr().out


@pytest.mark.process
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_library_loads_with_the_stand_in_of_those_it_lacks(tmp_path):
    """Two libraries are missing, one of them with symbol versions."""
    gcc(
        tmp_path, "libversioned.so.1", "int versioned(void) { return 1; }", versions="libversioned.so.1 { versioned; };"
    )
    gcc(tmp_path, "libplain.so.2", "int plain(void) { return 1; }")
    source = (
        "#include <stdio.h>\nint versioned(void); int plain(void);\n"
        'int ours(void) { return 7; }\nint theirs(void) { return printf("%d", versioned() + plain()); }\n'
    )
    library = gcc(tmp_path, "libtorch_python.so", source, "-L.", "-l:libversioned.so.1", "-l:libplain.so.2")
    for name in ("libversioned.so.1", "libplain.so.2"):
        (tmp_path / name).unlink()
    with pytest.raises(OSError, match="cannot open shared object"):
        ctypes.CDLL(str(library))
    stand_in(tmp_path)
    assert ctypes.CDLL(str(library)).ours() == 7


def gcc(directory: Path, name: str, source: str, *argv: str, versions: str = "") -> Path:
    (directory / "source.c").write_text(source)
    (directory / "versions.map").write_text(versions)
    script = ["-Wl,--version-script=versions.map"] if versions else []
    shared = ["gcc", "-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", f"-Wl,-soname,{name}", *script]
    subprocess.run([*shared, "source.c", "-o", name, *argv], cwd=directory, check=True)
    return directory / name
