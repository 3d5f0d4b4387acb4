"""`make tensorflow-all`: TensorFlow jobs again and again, on every engine, and AWS's own script; writes docs/tensorflow_all.md.

    python bench/tensorflow_all.py --checkouts DIR       everything; stop it and start it again as you like
    python bench/tensorflow_all.py --only ssh            rows whose name begins so
    python bench/tensorflow_all.py --report-only         only the page, from what is there

Every job runs for real, in the environment of `make tensorflow`, on two hosts with a network of their own where the engine has hosts.
DIR has a checkout of AWS's repository, named OWNER+NAME. Results are kept outside of the repository, by the state of src/; what is there
is not run again.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(REPOSITORY / folder) for folder in ("src", "tests/parts/engines/places", "tests/shared", "tests/torches")
]

import install_tensorflow  # noqa: E402
import sites  # noqa: E402
from tensorflow_all_page import page  # noqa: E402
from wild import Results, revision_of, sources  # noqa: E402

PAGE = REPOSITORY / "docs" / "tensorflow_all.md"
SCRIPTS = REPOSITORY / "tests" / "process" / "scripts" / "tensorflow"
TIMES = 20
# A job that waits for ever ends by itself, with the longest grace of a rank after it.
MAX_RUN_SECONDS, LIMIT_SECONDS = 600, 800
ON = {"enabled": True}
FORMS = {
    "multi_worker_mirrored_strategy": ({"multi_worker_mirrored_strategy": ON}, "fit.py", "rank 0 of 2: "),
    "parameter_server": ({"parameter_server": ON}, "servers.py", "/job:ps/"),
    "smdistributed": ({"smdistributed": {"dataparallel": ON}}, "smddp_fit.py", "rank 0 of 2: "),
}
FIT = """
import json, sys
from paceline.estimator import TensorFlow
TensorFlow(**json.loads(sys.argv[1])).fit()
"""
AWS_REPOSITORY = "aws/amazon-sagemaker-examples"
# The folder's name does begin with a space.
AWS_SCRIPT = Path(" archived/mnist/code/train_tensorflow_smdataparallel_mnist.py")
AWS_BATCHES = 120
AWS_DATA = """
import sys, numpy
rng = numpy.random.default_rng(0)
labels = rng.integers(0, 10, 4096).astype("uint8")
images = rng.integers(0, 128, (4096, 28, 28)).astype("uint8")
# A bright bar whose height is the digit.
for image, label in zip(images, labels):
    image[2 * label : 2 * label + 4] += 120
numpy.savez(sys.argv[1], x_train=images, y_train=labels, x_test=images[:64], y_test=labels[:64])
"""


@dataclass(frozen=True)
class Row:
    """A job that must succeed `wanted` times on `engine`. `script` lies in the directory of the job; `said` must be in its output."""

    name: str
    engine: str
    script: Path
    said: str
    wanted: int = 1
    form: str = ""
    """`distribution=`; empty: a job of `paceline run`."""
    hosts: Sequence[int] = (2,)
    """Numbers of hosts, which take turns."""
    ranks_per_host: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    saves: bool = False
    """Whether it must leave a SavedModel."""

    def argv(self, number: int, place: sites.Site) -> list[str]:
        """The command of its job with this number."""
        hosts = self.hosts[number % len(self.hosts)]
        if self.form:
            return [sys.executable, "-c", FIT, json.dumps(self._arguments(hosts, place))]
        words = ["--local-hosts", str(hosts), "--tf-config", "multi_worker_mirrored", "--max-run", str(MAX_RUN_SECONDS)]
        return [sys.executable, "-m", "paceline", "run", *words, self.script.name]

    def _arguments(self, hosts: int, place: sites.Site) -> dict[str, Any]:
        # Without the type of its machines a job that trains one rank per GPU would be refused: they have none.
        kind: dict[str, Any] = {"engine": self.engine, "instance_type": sites.INSTANCE_TYPE}
        if self.engine == "local":
            kind = {"instance_type": "local"}
        elif self.engine == "sagemaker":
            kind |= {"role": sites.ROLE, "image_uri": sites.IMAGE}
        if self.ranks_per_host > 1:
            kind["processes_per_instance"] = self.ranks_per_host
        return {
            "entry_point": self.script.name,
            "instance_count": hosts,
            "distribution": FORMS[self.form][0],
            "max_run": MAX_RUN_SECONDS,
            "environment": self.environment,
            "engine_options": dict(place.options),
            **kind,
        }


def rows(python: Path, checkouts: Path) -> Iterator[Row]:
    """Everything that is tried: each engine first, then what takes long."""
    ranks = {"PYTHON_EXEC": str(python), "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    for engine in sites.ENGINES:
        for form, (_, script, said) in FORMS.items():
            yield Row(f"{engine} {form}", engine, SCRIPTS / script, said, form=form, environment=ranks)
    mirrored = "multi_worker_mirrored_strategy"
    yield Row("fit", "local", SCRIPTS / "fit.py", "rank 1 of 2: ", TIMES, mirrored, environment=ranks)
    yield Row("run", "local", SCRIPTS / "fit.py", "rank 1 of ", TIMES, hosts=(2, 3, 4), environment=ranks)
    script = aws_checkout(checkouts) / AWS_SCRIPT
    legacy = {**ranks, "TF_USE_LEGACY_KERAS": "1", "MNIST_BATCHES": str(AWS_BATCHES)}
    for each in (1, 2):
        yield Row(f"aws {2 * each}", "local", script, "Loss: ", 1, "smdistributed", (2,), each, legacy, saves=True)


def aws_checkout(checkouts: Path) -> Path:
    return checkouts / AWS_REPOSITORY.replace("/", "+")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkouts", type=Path, default=Path("checkouts"), help="directory with a checkout OWNER+NAME"
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="beginning of a row's name; may be repeated")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    args = parser.parse_args()
    python = install_tensorflow.python()
    if python is None:
        print("TensorFlow is not installed: make tensorflow", file=sys.stderr)
        return 2
    every = list(rows(python, args.checkouts))
    missing = {row.name: why for row in every if (why := what_is_missing(row))}
    results = Results(kept_at())
    chosen = [row for row in every if not args.only or row.name.startswith(tuple(args.only))]
    try:
        for engine in () if args.report_only else sites.ENGINES:
            of_engine = [row for row in chosen if row.engine == engine and row.name not in missing]
            run_rows(engine, of_engine, results)
    except KeyboardInterrupt:
        print(f"stopped; go on with the same command ({results.path})", file=sys.stderr)
        return 130
    revision = revision_of(aws_checkout(args.checkouts)) if aws_checkout(args.checkouts).is_dir() else ""
    aws = f"`{str(AWS_SCRIPT).strip()}` of {AWS_REPOSITORY} at {revision[:10] or 'no revision, for lack of a checkout'}"
    PAGE.write_text(
        page(every, results.all(), missing, conditions(results.all(), python), aws, AWS_BATCHES), encoding="utf-8"
    )
    print(f"{PAGE} from {results.path}")
    return 0


def kept_at() -> Path:
    """Where the results of this state of src/ and this TensorFlow are."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "paceline-tensorflow-all" / f"{sources()}-{install_tensorflow.environment().name}.jsonl"


def what_is_missing(row: Row) -> str:
    """Why a row cannot run here; empty where it can."""
    if not row.script.exists():
        return f"no checkout of {AWS_REPOSITORY}"
    return sites.missing(row.engine) or ""


def run_rows(engine: str, chosen: Sequence[Row], results: Results) -> None:
    """What is not there yet of the rows of one engine, on one site."""
    left = [
        (row, number) for row in chosen for number in range(row.wanted) if not results.has(row=row.name, number=number)
    ]
    if not left:
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paceline-site-", dir="/tmp")))
        place = sites.site(engine, stack, folder / "site", own_environment(folder))
        for row, number in left:
            results.append(trial(row, number, place, results))


def own_environment(folder: Path) -> dict[str, str]:
    """That of a person at a shell, whose jobs are listed below `folder`."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PET_", "SM_"))
    }
    paths = [str(REPOSITORY / "bench" / "tensorflow_site"), str(REPOSITORY / "src")]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths), "XDG_STATE_HOME": str(folder / "state")}


def trial(row: Row, number: int, place: sites.Site, results: Results) -> dict[str, Any]:
    """One job to its end. The recording of one that failed is kept."""
    with tempfile.TemporaryDirectory(prefix="paceline-tensorflow-", dir="/tmp") as base:
        directory = Path(base)
        (directory / row.script.name).write_bytes(row.script.read_bytes())
        began = time.monotonic()
        code = run(row, number, place, directory)
        seconds = round(time.monotonic() - began, 1)
        said = (directory / "out.txt").read_text(errors="replace")
        problems = list(problems_of(row, code, said, directory))
        if problems:
            results.keep(directory, f"{row.name}-{number}".replace(" ", "-"))
        losses = [line.rpartition(" ")[2] for line in said.splitlines() if "Loss: " in line]
        return {"row": row.name, "number": number, "problems": problems, "seconds": seconds, "losses": losses}


def problems_of(row: Row, code: int | None, said: str, directory: Path) -> Iterator[str]:
    """What is wrong with a job that has ended, in words."""
    if code != 0:
        yield "not over in time" if code is None else f"exit code {code}"
    if row.said not in said:
        yield f"its output lacks {row.said.strip()!r}"
    if row.saves and not (directory / "model" / "1" / "saved_model.pb").exists():
        yield "no SavedModel"


def run(row: Row, number: int, place: sites.Site, directory: Path) -> int | None:
    """The exit code of the job; None: it was not over in time. Its output goes to out.txt."""
    environment = {**place.environment, **row.environment}
    if row.saves:
        data = directory / "mnist.npz"
        subprocess.run([row.environment["PYTHON_EXEC"], "-c", AWS_DATA, str(data)], check=True)
        environment |= {"MNIST_NPZ": str(data), "SM_MODEL_DIR": str(directory / "model")}
    with (directory / "out.txt").open("wb") as out:
        options = {"cwd": directory, "env": environment, "stdout": out, "stderr": subprocess.STDOUT}
        job = place.start(row.argv(number, place), **options)
        try:
            return job.wait(LIMIT_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as early:
            # The job of fit() goes on without it.
            place.start([sys.executable, "-m", "paceline", "stop", "--now"], **options).wait()
            if isinstance(early, KeyboardInterrupt):
                raise
            return None
        finally:
            job.kill()
            job.wait()


def conditions(found: Sequence[dict[str, Any]], python: Path) -> str:
    """What a reader has to know about the numbers."""
    loads = [row["load"] for row in found]
    busy = f"load {min(loads):.0f} to {max(loads):.0f}, median {statistics.median(loads):.0f}" if loads else "no load"
    names = ("tensorflow-cpu", "keras", "tf-keras")
    ask = f"import importlib.metadata as m; print(*(f'{{name}} {{m.version(name)}}' for name in {names}), sep=', ')"
    versions = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    states = [
        f"{state} for {', '.join(dict.fromkeys(row['row'].split()[0] for row in found if row['sources'] == state))}"
        for state in dict.fromkeys(row["sources"] for row in found)
    ]
    return (
        f"{versions}; Python {platform.python_version()}, {os.cpu_count()} CPU cores, {busy}: where that is more than the\n"
        f"cores, read no time from this page. Sources (a hash of src/): {'; '.join(states) or 'unknown'}."
    )


if __name__ == "__main__":
    sys.exit(main())
