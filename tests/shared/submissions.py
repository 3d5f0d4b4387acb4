"""Jobs for engines, said in one flat list of fields: those of Job, Contract and JobFile find their place."""

from dataclasses import fields, replace

from paceline.facts import Contract, Job, Program, ProgramKind
from paceline.job_file import JobFile
from paceline.parts.engines.submission import Submission

_SCRIPT = Program(kind=ProgramKind.SCRIPT, target="train.py")
_OF_SUBMISSION, _OF_FILE, _OF_CONTRACT = (
    {one.name for one in fields(kind)} for kind in (Submission, JobFile, Contract)
)


def a_submission(**said) -> Submission:
    """A job of one script, r-000001, called train, unless something else is said."""
    own = Job(name="train", program=_SCRIPT)
    return changed(Submission(file=JobFile(job=own, run_id="r-000001")), **said)


def changed(submission: Submission, **said) -> Submission:
    """The same job but for these fields, wherever they are."""
    of_submission = {name: value for name, value in said.items() if name in _OF_SUBMISSION}
    of_contract = {name: value for name, value in said.items() if name in _OF_CONTRACT}
    of_file = {name: value for name, value in said.items() if name in _OF_FILE - {"job"} and name not in of_submission}
    of_job = {name: value for name, value in said.items() if name not in {*of_submission, *of_contract, *of_file}}
    file = of_submission.pop("file", submission.file)
    job = replace(file.job, contract=replace(file.job.contract, **of_contract), **of_job)
    return replace(submission, file=replace(file, job=job, **of_file), **of_submission)
