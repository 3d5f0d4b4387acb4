"""K26: loader workers that import a script without a main guard."""

import sys
from pathlib import Path

import pytest

from paceline.rules.job_facts import SourceFile
from paceline.rules.source.k26_no_main_guard import default_start_method

EXAMPLES = Path(__file__).parents[3] / "examples"
LOADER = "from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=2)\n"
SPAWN = "import torch.multiprocessing as mp\nmp.set_start_method('spawn')\n"
IN_MAIN = "import torch\ndef main():\n    for batch in torch.utils.data.DataLoader(data, 8, True, None, None, 4): pass\nmain()\n"
GUARD = "if __name__ == '__main__':\n    main()\n"


@pytest.mark.parametrize("text", [LOADER, IN_MAIN, "import multiprocessing\n" + LOADER])
def test_workers_import_the_script_from_python_314_on(found, job, text):
    assert [finding.code for finding in found("K26", job(text))] == ["K26"] * (sys.version_info >= (3, 14))
    assert [default_start_method((3, minor)) for minor in (11, 13, 14, 15)] == [
        "fork",
        "fork",
        "forkserver",
        "forkserver",
    ]


@pytest.mark.parametrize(
    "text",
    [
        SPAWN + LOADER,
        "import multiprocessing\nmultiprocessing.set_start_method(method='forkserver', force=True)\n" + IN_MAIN,
        LOADER.replace("2)", "2, multiprocessing_context='spawn')"),
    ],
)
def test_a_start_method_that_is_set_counts_on_every_python(found, job, text):
    (finding,) = found("K26", job(text))
    assert "main guard" in finding.what and "__main__" in finding.next


@pytest.mark.parametrize(
    "text",
    [
        IN_MAIN.removesuffix("main()\n") + GUARD,
        LOADER.replace("num_workers=2", "num_workers=0"),
        LOADER.replace("num_workers=2", "num_workers=args.workers"),
        LOADER.replace(", num_workers=2", ""),
        LOADER.replace("2)", "2, multiprocessing_context='fork')"),
        LOADER.replace("2)", "2, multiprocessing_context=context)"),
        SPAWN.replace("spawn", "fork") + LOADER,
        SPAWN.replace("'spawn'", "args.method") + LOADER,
        f"{SPAWN}mp.set_start_method('fork', force=True)\n{LOADER}",
        "def start_method(): pass\n" + LOADER,
        "if '__main__' != __name__:\n    raise SystemExit\n" + LOADER,
    ],
)
def test_what_may_be_right_is_not_reported(found, job, text):
    assert not found("K26", job(text))


def test_a_file_that_is_imported_may_set_the_start_method(found, job):
    imported = (SourceFile("setup.py", "import multiprocessing\nmultiprocessing.set_start_method('fork')\n"),)
    assert not found("K26", job(LOADER, imported=imported))


def test_the_script_of_a_file_that_makes_a_loader_may_have_the_guard(found, job):
    imported = (SourceFile("data.py", SPAWN + LOADER),)
    assert not found("K26", job("import data\n" + GUARD, imported=imported))
    assert found("K26", job("import data\nmain()\n", imported=imported))


def test_examples_with_loader_workers_have_a_guard():
    texts = [path.read_text() for path in EXAMPLES.rglob("*.py")]
    some = [text for text in texts if "num_workers" in text and "class " in text and "Training(args)" in text]
    assert len(some) >= 4 and all('if __name__ == "__main__":' in text for text in some)
