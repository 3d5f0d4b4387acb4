"""Write the pages that are made from the code: `python -m paceline.cli.programs.write_docs DOCS_FOLDER`. `make docs` does."""

import sys
from pathlib import Path

from paceline.cli import all_verbs, verb_module
from paceline.cli.programs.agents_page import agents_page
from paceline.cli.programs.api_page import api_page
from paceline.cli.programs.job_file_page import job_file_page
from paceline.cli.programs.schemas_page import schemas_page
from paceline.cli.programs.verbs_page import verbs_page
from paceline.rules import all_causes, pages
from paceline.rules.host_facts import all_host_checks
from paceline.rules.job_facts import all_checks
from paceline.views.cause_pages import cause_anchor, causes_page
from paceline.views.check_pages import check_anchor, checks_page
from paceline.views.code_pages import codes_page


def causes_text() -> str:
    """The content of docs/causes.md."""
    return causes_page(all_causes())


def checks_text() -> str:
    """The content of docs/checks.md."""
    return checks_page((*all_checks(), *all_host_checks()))


def verbs_text() -> str:
    """The content of docs/verbs.md."""
    return verbs_page(verb_module(verb).VERB for verb in all_verbs())


def codes_text() -> str:
    """The content of docs/codes.md."""
    causes = {cause.code: f"causes.md#{cause_anchor(cause)}" for cause in all_causes()}
    checks = {check.code: f"checks.md#{check_anchor(check)}" for check in (*all_checks(), *all_host_checks())}
    return codes_page(pages(), causes | checks)


def schemas_text() -> str:
    """The content of docs/schemas.md."""
    return schemas_page()


def main(folder: Path) -> int:
    """Write every page that is generated from the code."""
    (folder / "causes.md").write_text(causes_text(), encoding="utf-8")
    (folder / "agents.md").write_text(agents_page(), encoding="utf-8")
    (folder / "api.md").write_text(api_page(), encoding="utf-8")
    (folder / "checks.md").write_text(checks_text(), encoding="utf-8")
    (folder / "verbs.md").write_text(verbs_text(), encoding="utf-8")
    (folder / "codes.md").write_text(codes_text(), encoding="utf-8")
    (folder / "job_file.md").write_text(job_file_page(), encoding="utf-8")
    (folder / "schemas.md").write_text(schemas_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
