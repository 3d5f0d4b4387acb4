"""Start, watch and end jobs from Python, in a program or a notebook; what each answers is what the verb of that name prints.

`import paceline` has these names too: `paceline.run("train.py", ["--lr", "3e-4"], nproc_per_node=2)`.
"""

from paceline.api.answers import Answer, Logs, Why
from paceline.api.handle import RunHandle, Runs
from paceline.api.start import run, run_function, runs

__all__ = ["Answer", "Logs", "RunHandle", "Runs", "Why", "run", "run_function", "runs"]
