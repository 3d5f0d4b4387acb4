"""A store that stops answering: a file system for fsspec, found by it in processes that get `variables`."""

import os

_SYSTEM = """
import os, time
from fsspec.implementations.local import LocalFileSystem

class DeadStore(LocalFileSystem):
    protocol = "deadstore"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{**kwargs, "auto_mkdir": True})

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("deadstore://"))

    def _wait(self):
        while os.path.exists(os.environ["PACELINE_TEST_DEAD_STORE"]):
            time.sleep(0.05)

    def _open(self, *args, **kwargs):
        self._wait()
        return super()._open(*args, **kwargs)

    def ls(self, *args, **kwargs):
        self._wait()
        return super().ls(*args, **kwargs)

    def rm(self, *args, **kwargs):
        self._wait()
        return super().rm(*args, **kwargs)
"""


class DeadStore:
    """Its files are below `folder`, and it answers until `die`."""

    def __init__(self, folder):
        self.place, self._dead, site = folder / "store", folder / "dead", folder / "site"
        self.url = f"deadstore://{self.place}"
        entry = site / "deadstore-1.dist-info"
        entry.mkdir(parents=True)
        (site / "deadstore_system.py").write_text(_SYSTEM)
        (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: deadstore\nVersion: 1\n")
        (entry / "entry_points.txt").write_text("[fsspec.specs]\ndeadstore = deadstore_system:DeadStore\n")
        before = os.environ.get("PYTHONPATH")
        self.variables = {
            "PYTHONPATH": os.pathsep.join([str(site), *([before] if before else [])]),
            "PACELINE_TEST_DEAD_STORE": str(self._dead),
        }

    def die(self):
        self._dead.touch()

    def live(self):
        self._dead.unlink()
