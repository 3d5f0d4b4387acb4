"""Which interpreter is taken."""

from install_python import of_pyenv


def test_the_newest_interpreter_of_a_version_is_taken_from_pyenv(tmp_path, monkeypatch):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    for name in ("3.13.9", "3.13.10", "3.13.2", "3.14.0"):
        program = tmp_path / "versions" / name / "bin" / f"python{name.rpartition('.')[0]}"
        program.parent.mkdir(parents=True)
        program.touch()
    assert of_pyenv("3.13") == tmp_path / "versions" / "3.13.10" / "bin" / "python3.13"
    assert of_pyenv("3.1") is None
