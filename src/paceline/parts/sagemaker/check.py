"""A script or a notebook that builds an estimator is a job of SageMaker: it is checked as `fit()` would check it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.errors import UsageError
from paceline.findings import Judgement, Verdict
from paceline.part import BuiltJobs, CheckPart
from paceline.rules.sources import read_source

# A script that imports neither builds no estimator.
_IMPORTS = re.compile(r"\b(?:from|import)\b[^\n]{0,200}?\b(?:sagemaker|paceline)\b")


class EstimatorsOnCheck(CheckPart):
    def built_by(self, path: Path, name: str) -> BuiltJobs | None:
        """The jobs of the estimators that a script or notebook builds.

        Raises:  UsageError U02: a notebook that builds none, or cannot be read
        """
        is_notebook = path.suffix == ".ipynb"
        if not is_notebook and not (path.suffix == ".py" and _IMPORTS.search(read_source(path) or "")):
            return None
        from paceline.parts.sagemaker.estimator.in_source import cells_of, estimators_in, verdicts_of_estimator

        cells = cells_of(path, name)
        found = estimators_in(cells) if any(_IMPORTS.search(cell.text) for cell in cells) else []
        if is_notebook and not found:
            raise UsageError(
                "U02",
                f"{name} is a notebook, and its cells build no estimator",
                saw=f"{len(cells)} cells of code",
                next="paceline check train.py, with the script that the job runs",
            )
        if not found:
            return None
        lines = [
            f"paceline  {one.place} builds {one.class_name}(): its job is checked"
            + (f", and its script {one.script}" if one.script else "")
            for one in found
        ]
        of_code: dict[str, list[Verdict]] = {}
        for one in found:
            for verdict in verdicts_of_estimator(one, path.absolute().parent):
                of_code.setdefault(verdict.code, []).append(verdict)
        return BuiltJobs(lines=lines, verdicts=[_together(verdicts) for _, verdicts in sorted(of_code.items())])


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    findings = tuple(dict.fromkeys(finding for verdict in verdicts for finding in verdict.findings))
    if findings:
        return replace(verdicts[0], judgement=Judgement.FIRED, findings=findings, missing="")
    unseen = next((verdict for verdict in verdicts if verdict.judgement is Judgement.NOT_JUDGED), None)
    return unseen or verdicts[0]
