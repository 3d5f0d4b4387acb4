"""The documentation site: `make site` reads these settings. Sphinx loads its extensions by the names below."""

import re
import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent


def version_of_paceline() -> str:
    """Read as text, so that the site builds where paceline is not installed."""
    text = (REPOSITORY / "src/paceline/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if found is None:
        raise ValueError("src/paceline/__init__.py has no __version__")
    return found[1]


project = "paceline"
release = version = version_of_paceline()
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
# Links such as running.md#exit-codes, in the form that code hosts give to headings.
myst_heading_anchors = 4
# Console blocks hold output besides commands, and blocks without a language hold anything: neither is coloured.
highlight_language = "none"

html_theme = "furo"
html_title = f"paceline {version}"
html_copy_source = False
html_show_sourcelink = False

# Pages link to files at the top of the repository, which the site has among its own pages.
TOP_FILES = re.compile(r"\]\((?:\.\./)+(CHANGELOG|SECURITY)\.md")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", lead_to_own_pages)
    app.connect("build-finished", copy_pictures)


def copy_pictures(app: Any, error: Exception | None) -> None:
    """Pages name their pictures in HTML, one for light and one for dark, and Sphinx copies only those that Markdown names."""
    if error is None and app.builder.format == "html":
        shutil.copytree(REPOSITORY / "docs" / "pictures", Path(app.outdir) / "pictures", dirs_exist_ok=True)


def lead_to_own_pages(app: Any, name: str, text: list[str]) -> None:
    """Change the links of a page as Sphinx reads it; `text` holds the page alone."""
    text[0] = TOP_FILES.sub(lambda found: f"](/project/{found[1].lower()}.md", text[0])
