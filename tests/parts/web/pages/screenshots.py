"""Writes the pictures of docs/howto/report.md from the kept recordings.

python tests/parts/web/pages/screenshots.py docs/howto
"""

import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from conftest import Browser, started
from kept import RUNS

from paceline.cli import main

WIDTH = 1100


def shoot(browser, name, page):
    """The page from its top to the end of the map and the pace."""
    browser.open(page, width=WIDTH)
    browser.devtools("Emulation.setScrollbarsHidden", hidden=True)
    height = browser.run("return Math.ceil(document.getElementById('map').getBoundingClientRect().bottom + scrollY)")
    browser.devtools(
        "Emulation.setDeviceMetricsOverride", width=WIDTH, height=height, deviceScaleFactor=1, mobile=False
    )
    browser.wait("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    return browser.driver.get_screenshot_as_png()


if __name__ == "__main__":
    driver = started()
    try:
        for one in ("hang", "straggler", "healthy"):
            with tempfile.TemporaryDirectory() as folder:
                page = Path(folder) / "page.html"
                main(["report", str(RUNS / one), "-o", str(page)])
                (Path(sys.argv[1]) / f"report_{one}.png").write_bytes(shoot(Browser(driver), one, page))
    finally:
        driver.quit()
