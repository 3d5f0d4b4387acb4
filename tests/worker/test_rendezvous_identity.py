"""What a rank brings to its rendezvous, as it writes it and as it is read again."""

import os
import sys
import types
import zlib

import pytest

from paceline.diagnosis.crash.rendezvous import brought
from paceline.worker import rendezvous_identity


def test_what_is_written_is_read_again(monkeypatch, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    monkeypatch.setattr(
        "sys.modules", {**__import__("sys").modules, "__main__": type("Main", (), {"__file__": str(script)})}
    )
    for name, value in {"MASTER_ADDR": "h0", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "^lo"}.items():
        monkeypatch.setitem(os.environ, name, value)
    found = brought(rendezvous_identity.identity({"backend": "gloo"}, 1, 2))
    assert (found["rank"], found["world_size"], found["backend"]) == ("1", "2", "gloo")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"], found["GLOO_SOCKET_IFNAME"]) == ("h0", "29500", "^lo")
    assert found["script"] == "train.py" and found["script_crc"] == f"{zlib.crc32(script.read_bytes()):08x}"


@pytest.mark.parametrize("name", ["torch", "tensorflow"])
def test_the_version_of_the_framework_is_told(monkeypatch, name):
    version = types.SimpleNamespace(__version__="9.8.7")
    monkeypatch.setattr("sys.modules", {**sys.modules, name: version})
    assert brought(rendezvous_identity.identity({}, 0, 2))[name] == "9.8.7"
    # Nothing of the name was loaded, or something without a version.
    for other in ({}, {name: types.SimpleNamespace()}):
        rest = {key: module for key, module in sys.modules.items() if key != name}
        monkeypatch.setattr("sys.modules", {**rest, **other})
        assert name not in brought(rendezvous_identity.identity({}, 0, 2))


def test_a_value_with_line_ends_makes_no_further_value(monkeypatch):
    monkeypatch.setitem(os.environ, "MASTER_ADDR", "a\nrank=7")
    assert brought(rendezvous_identity.identity({}, 1, 2))["rank"] == "1"


def test_it_fits_into_the_ring(monkeypatch):
    for name in rendezvous_identity.VARIABLES:
        monkeypatch.setitem(os.environ, name, "é" * 4000)
    assert len(rendezvous_identity.identity({"init_method": "x" * 4000}, 1, 2).encode()) <= 1023


def test_the_script_of_a_zip_application_is_the_archive(monkeypatch, tmp_path):
    archive = tmp_path / "train.pyz"
    archive.write_bytes(b"#!/usr/bin/env python3\nPK\x05\x06")
    main = type("Main", (), {"__file__": str(archive / "__main__.py")})
    monkeypatch.setattr("sys.modules", {**__import__("sys").modules, "__main__": main})
    found = brought(rendezvous_identity.identity({}, 0, 2))
    assert (found["script"], found["script_crc"]) == ("train.pyz", f"{zlib.crc32(archive.read_bytes()):08x}")
    assert found["code_files"] == "0"


@pytest.mark.parametrize("size_bytes", [(8 << 20) + 1, 3 << 30])
def test_a_large_program_is_read_at_both_ends_alone_and_told_apart(monkeypatch, tmp_path, size_bytes):
    archive = tmp_path / "train.pyz"
    main = type("Main", (), {"__file__": str(archive / "__main__.py")})
    monkeypatch.setattr("sys.modules", {**__import__("sys").modules, "__main__": main})

    def told(begin, end, size=size_bytes):
        # A hole, so that it takes no room on the disk.
        with archive.open("wb") as file:
            file.write(begin)
            file.seek(size - len(end))
            file.write(end)
        read_before = _characters_read()
        found = brought(rendezvous_identity.identity({}, 0, 2))["script_crc"]
        assert _characters_read() - read_before < 8 << 20
        return found

    same = told(b"PK", b"end")
    assert told(b"PK", b"end") == same
    assert len({same, told(b"QK", b"end"), told(b"PK", b"fin"), told(b"PK", b"end", size_bytes + 1)}) == 4


def _characters_read():
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("rchar"))
