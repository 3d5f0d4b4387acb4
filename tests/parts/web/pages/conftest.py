"""A browser for the tests that look at a page: Debian's Chromium by selenium, which downloads nothing."""

import gzip
import shutil
from pathlib import Path

import pytest
from kept import kept

from paceline.cli import main

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
AXE = Path(__file__).parent / "axe" / "axe-4.14.1.min.js.gz"
# A page of thousands of ranks, on a machine that others use too.
WAIT_SECONDS = 60


class Browser:
    """One tab."""

    def __init__(self, driver):
        self.driver = driver

    def devtools(self, command, **values):
        return self.driver.execute_cdp_cmd(command, values)

    def run(self, script, *values):
        """The value of a function body in the page."""
        return self.driver.execute_script(script, *values)

    def wait(self, script):
        """Until the script's value is true; the value."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, WAIT_SECONDS, poll_frequency=0.05).until(lambda _: self.run(script))

    def open(self, page, *, width=1280, dark=False, fragment=""):
        """A file, until its script has drawn it."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])
        # The same address with another fragment would not be loaded again.
        self.driver.get("about:blank")
        self.messages()
        self.driver.get(f"{page.as_uri()}{fragment}" if isinstance(page, Path) else page)
        self.wait("return 'ready' in document.documentElement.dataset")

    def messages(self):
        """What the console got since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def key(self, *names):
        """Keys into what has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        for name in names:
            ActionChains(self.driver).send_keys(getattr(Keys, name, name)).perform()

    def violations(self):
        """What axe finds: WCAG 2.2 AA and best practice."""
        # By the debugger, so that the page's own policy stays as it is.
        if not self.run("return typeof axe === 'object'"):
            self.devtools("Runtime.evaluate", expression=gzip.decompress(AXE.read_bytes()).decode())
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then((one) => done(one.violations));"
        )
        return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]


def started():
    """A browser without a window; whoever starts it ends it with `quit`."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    switches = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "force-color-profile=srgb")
    for name in switches:
        options.add_argument(f"--{name}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(60)
    return driver


@pytest.fixture(scope="session")
def driver():
    pytest.importorskip("selenium", reason="no selenium: make web-ci installs it")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium or no chromedriver: apt-get install chromium chromium-driver")
    driver = started()
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver):
    return Browser(driver)


@pytest.fixture(scope="session")
def page_of(tmp_path_factory):
    """The report of a kept recording, written once."""
    pages = {}

    def write(name, *options):
        if (name, *options) not in pages:
            folder = tmp_path_factory.mktemp(name)
            directories = kept(name, folder / "run")
            page = folder / "page.html"
            further = [word for path in directories[1:] for word in ("--dir", str(path))]
            assert main(["report", str(directories[0]), *further, *options, "-o", str(page)]) == 0
            pages[(name, *options)] = page
        return pages[(name, *options)]

    return write
