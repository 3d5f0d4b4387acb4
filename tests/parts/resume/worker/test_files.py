"""What a script has written is there once after it ran again from the top: a child process plays both lives."""

import subprocess
import sys
import textwrap

import pytest

# Two lives of a script: the first one is cut off after its third step, with the state of step 2 kept.
LIVES = """
import csv, logging, os, pathlib, pickle, shutil, sys
from paceline.parts.resume.worker.files import Files
from paceline.parts.resume.worker.object_graph import CannotKeep

class Session:
    trains = False
    def follows(self): return True
    def is_training(self): return self.trains
    def is_of_rank(self): return True
    # The first life ended in step 4, and went on from step 2.
    def makes_steps_again(self): return life == 2 and not files._repeating

life, kept = int(sys.argv[1]), pathlib.Path("kept")
session = Session()
files = Files(session)
if life == 2:
    files.expect(pickle.loads(kept.read_bytes()))
files.patch()

def head(step):
    # What the state of step 2 holds; in the second life the state is put back there.
    if life == 1 and step == 2:
        session.trains = True
        try:
            found = files.kept()
        except CannotKeep as error:
            print("refused:", error)
            os._exit(0)
        os.write(os.open("kept", os.O_WRONLY | os.O_CREAT), pickle.dumps(found))
    if life == 2 and step == 2:
        files.put_back()

def steps():
    # Steps 1 and 2 are passed over in the second life; the first one ends without a word in the middle of step 4.
    for step in range(1, 7):
        if life == 2 and step <= 2:
            head(step)
            continue
        if life == 1 and step == 4:
            os._exit(9)
        yield step
        head(step)
"""

SCRIPTS = {
    "w": """
        log = open("log.txt", "w")
        log.write("header\\n")
        for step in steps():
            log.write(f"step {step}\\n")
        log.write("end\\n")
        log.close()
    """,
    "a": """
        log = open("log.txt", "a")
        for step in steps():
            log.write(f"step {step}\\n"); log.flush()
        log.close()
    """,
    "a each time": """
        for step in steps():
            with open("log.txt", "a") as log:
                log.write(f"step {step}\\n")
    """,
    "x": """
        with open("log.txt", "x") as log:
            for step in steps():
                print("step", step, file=log)
    """,
    "csv": """
        with open("log.txt", "w", newline="") as file:
            writer = csv.DictWriter(file, ["step", "loss"])
            writer.writeheader()
            for step in steps():
                writer.writerow({"step": step, "loss": step / 2})
    """,
    "bytes": """
        with open("log.txt", "wb", buffering=0) as file:
            for step in steps():
                file.write(bytes([step]))
    """,
    "FileHandler": """
        logging.basicConfig(filename="log.txt", filemode="w", level=logging.INFO, format="%(message)s")
        logging.info("beginning")
        for step in steps():
            logging.info("step %d", step)
        logging.info("end")
    """,
    "pathlib and makedirs": """
        out = pathlib.Path("runs", "one")
        os.makedirs(out)
        (out / "config.json").write_text("{}")
        with (out / "log.txt").open("w") as log:
            for step in steps():
                log.write(f"step {step}\\n")
        shutil.copy(out / "log.txt", "log.txt")
    """,
    "an old log is removed": """
        if os.path.exists("log.txt"):
            os.remove("log.txt")
        for step in steps():
            with open("log.txt", "a") as log:
                log.write(f"step {step}\\n")
    """,
}


def lived(script, life, directory):
    source = LIVES + textwrap.dedent(SCRIPTS.get(script, script))
    return subprocess.run([sys.executable, "-c", source, str(life)], cwd=directory, capture_output=True, text=True)


def undisturbed(script, directory):
    directory.mkdir()
    source = LIVES.replace("files.patch()", "").replace("life == 1 and", "False and") + textwrap.dedent(SCRIPTS[script])
    assert subprocess.run([sys.executable, "-c", source, "1"], cwd=directory).returncode == 0
    return (directory / "log.txt").read_bytes()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_file_is_as_if_nothing_had_happened(script, tmp_path):
    assert lived(script, 1, tmp_path).returncode == 9
    second = lived(script, 2, tmp_path)
    assert second.returncode == 0, second.stderr
    assert (tmp_path / "log.txt").read_bytes() == undisturbed(script, tmp_path / "undisturbed")


def test_a_script_that_removes_its_outputs_is_refused(tmp_path):
    (tmp_path / "outputs").mkdir()
    script = 'shutil.rmtree("outputs"); os.makedirs("outputs")\nfor step in steps(): pass'
    # A directory below the temporary one is nobody's output.
    found = lived("import tempfile; tempfile.tempdir = '/nowhere'\n" + script, 1, tmp_path)
    assert "refused: the script removes `" in found.stdout and "outputs`" in found.stdout


def test_a_file_to_which_another_process_writes_too_is_refused(tmp_path):
    script = """
        log = open("log.txt", "a")
        for step in steps():
            log.write("x"); log.flush()
            os.write(os.open("log.txt", os.O_WRONLY | os.O_APPEND), b"another")
    """
    assert "refused: another process writes to" in lived(script, 1, tmp_path).stdout


def test_what_the_script_sees_of_its_file(tmp_path):
    script = """
        log = open("log.txt", "w")
        for step in steps():
            log.write(f"step {step}\\n")
        print(log.name, log.mode, log.tell())
    """
    lived(script, 1, tmp_path)
    assert lived(script, 2, tmp_path).stdout.split() == ["log.txt", "w", "42"]
