"""What a look at the files says about resuming: which loops go on, which one trains, and what hinders it."""

import textwrap

import pytest

from paceline.findings import Severity
from paceline.parts.resume.resumable import look_at
from paceline.parts.resume.views.resume import can_resume, resume_facts, resume_text
from paceline.rules.job_facts import SourceFile


def look(text, **others):
    files = [SourceFile("train.py", textwrap.dedent(text))]
    return look_at([*files, *(SourceFile(f"{name}.py", textwrap.dedent(other)) for name, other in others.items())])


def training(found):
    return [(loop.file, loop.line) for loop in found.loops if loop.trains]


def codes(found):
    return [(finding.code, str(finding.severity), finding.line) for finding in found.findings]


LOOP = "for x in loader:\n    model(x).backward()\n    optimizer.step()\n"


def test_the_training_loop_is_the_innermost_with_a_step():
    found = look("""
        for epoch in range(3):
            for x in loader:
                for part in x.chunk(2):
                    model(part).backward()
                optimizer.step()
            scheduler.step()
            for x in test_loader:
                model(x)
    """)
    assert [loop.line for loop in found.loops] == [2, 3, 4, 8]
    assert training(found) == [("train.py", 3)]
    assert codes(found) == [] and can_resume(found) is True


def test_a_step_in_functions_of_other_files_is_found():
    found = look(
        "from engine import train\nfor epoch in range(3):\n    train(loader)\n    lr_scheduler.step()",
        engine="from update import apply\ndef train(loader):\n    for x in loader:\n        apply(x)\n",
        update="def apply(x):\n    inner(x)\ndef inner(x):\n    scaler.step(optimizer)\n",
    )
    assert training(found) == [("engine.py", 3)]


def test_a_loop_that_the_script_names_itself_is_the_only_one():
    found = look(f"from paceline.resume import steps\n{LOOP.replace('loader', 'steps(loader)')}for y in z:\n    f(y)")
    assert [(loop.line, loop.trains, loop.by_hand) for loop in found.loops] == [(2, True, True)]
    assert found.diffs == ()


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("from transformers import Trainer\nt = Trainer(m)\nt.train()", "resume_from_checkpoint=get_last_checkpoint("),
        ("import lightning as L\nL.Trainer().fit(m)", 'ckpt_path="last"'),
        ("import pytorch_lightning as pl\npl.Trainer().fit(m)", 'ckpt_path="last"'),
        (
            "from transformers import Trainer\nclass Mine(Trainer): pass\nMine(m).train()",
            "resume_from_checkpoint=get_last_checkpoint(",
        ),
    ],
)
def test_a_trainers_own_loop_is_refused_with_its_own_way_to_resume(text, advice):
    found = look(text)
    assert [finding.code for finding in found.findings] == ["F11"]
    assert found.findings[0].severity is Severity.ERROR and advice in found.findings[0].next
    assert can_resume(found) is False


def test_accelerate_is_no_trainer():
    found = look(f"from accelerate import Accelerator\naccelerator = Accelerator()\n{LOOP}")
    assert can_resume(found) is True


def test_a_while_loop_goes_on_as_a_for_loop_does():
    text = "while step < 100:\n    loss().backward()\n    optimizer.step()"
    assert (codes(look(text)), training(look(text))) == ([], [("train.py", 1)])
    assert training(look("while step < 100:\n    for x in loader:\n        optimizer.step(f(x))")) == [("train.py", 2)]


def test_a_removed_directory_is_named():
    found = look(f"import shutil\nshutil.rmtree('out')\n{LOOP}    shutil.rmtree('old')\n")
    assert codes(found) == [("F13", "warning", 2)]
    assert can_resume(found) is None


def test_a_script_without_a_step_and_a_file_that_is_not_python():
    found = look("import broken\nfor x in y:\n    f(x)", broken="for x in\n")
    assert codes(found) == [("F11", "warning", None)]
    assert found.not_judged == ("broken.py",)
    assert resume_text(found).splitlines()[-2:] == [
        "not judged: broken.py is not Python",
        "resume: not certain; `paceline run --resume auto` trains, and says if it cannot keep the state",
    ]


def test_the_answer_as_text_and_as_facts():
    found = look(LOOP)
    assert resume_text(found).splitlines() == [
        "LOOP        LINE",
        "train.py:1  for x in loader:  trains",
        "resume: yes, at the head of train.py:1",
    ]
    facts = resume_facts(found)
    assert facts.can_resume is True and facts.loops[0].line == 1
    assert "+for x in __paceline_loop__(1, loader):" in facts.diffs[0]
