"""What others meet first: the package's metadata, its wheel and sdist, the forms for issues and the workflows agree with each other."""

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

import paceline


@pytest.fixture(scope="module")
def project(repository):
    """The table [project] of pyproject.toml."""
    return tomllib.loads((repository / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def yaml_of(repository):
    """Reads a YAML file of the repository."""
    yaml = pytest.importorskip("yaml")
    return lambda name: yaml.safe_load((repository / name).read_text())


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    """The wheel as an installer gets it, opened."""
    return zipfile.ZipFile(built(repository, tmp_path_factory.mktemp("wheel"), "build_wheel"))


@pytest.fixture(scope="module")
def sdist_names(repository, tmp_path_factory):
    """What the sdist holds, without the name of its folder."""
    with tarfile.open(built(repository, tmp_path_factory.mktemp("sdist"), "build_sdist")) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def built(repository, folder, what):
    hatchling = pytest.importorskip("hatchling.build")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(repository)
        return folder / getattr(hatchling, what)(str(folder))


def test_make_gpu_installs_what_an_editable_install_without_isolation_needs(repository):
    hatchling = pytest.importorskip("hatchling.build")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(repository)
        needed = {re.match(r"[\w.-]+", text)[0] for text in ("hatchling", *hatchling.get_requires_for_build_editable())}
    recipe = (repository / "Makefile").read_text(encoding="utf-8").partition("\ngpu: ")[2].partition("\n\n")[0]
    for step in ("download --dest $(WHEELS)", "install --no-index --find-links $(WHEELS)"):
        assert needed <= set(recipe.partition(step)[2].partition("\n")[0].split())


def test_the_wheel_is_typed_and_has_every_file_of_the_package(repository, wheel):
    names = set(wheel.namelist())
    assert "paceline/py.typed" in names
    assert "paceline/worker/site/sitecustomize.py" in names
    assert {name for name in tracked(repository) if name.startswith("src/")} == {
        f"src/{name}" for name in names if name.startswith("paceline/")
    }
    assert {name.split("/")[0] for name in names} == {"paceline", f"paceline-{paceline.__version__}.dist-info"}


def test_the_metadata_of_the_wheel_names_every_python_that_the_workflow_tries(wheel, yaml_of, project):
    (metadata,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    named = re.findall(
        r"^Classifier: Programming Language :: Python :: (3\.\d+)$", wheel.read(metadata).decode(), re.MULTILINE
    )
    assert named == yaml_of(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert project["requires-python"] == f">={named[0]}"


def test_the_sdist_has_every_file_that_is_tracked(repository, sdist_names):
    missing = {name for name in tracked(repository) if name != ".gitignore"} - sdist_names
    assert not missing, sorted(missing)


def test_the_oldest_torch_is_the_first_of_those_that_were_measured(repository, project):
    first = re.search(r"^\| torch \| ([\d.]+) \|", (repository / "docs/faults_versions.md").read_text(), re.MULTILINE)
    assert project["optional-dependencies"]["torch"] == [f"torch>={first[1]}"]


def test_the_citation_names_the_version_and_the_licence_of_the_package(yaml_of, project):
    cited = yaml_of("CITATION.cff")
    assert (cited["version"], cited["license"]) == (paceline.__version__, project["license"])
    assert cited["abstract"] == project["description"]
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert [one["name"] for one in cited["authors"]] == [one["name"] for one in project["authors"]]


def test_a_form_for_an_issue_has_fields_that_can_be_filled_in(repository, yaml_of):
    forms = [
        path for path in sorted((repository / ".github/ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"
    ]
    assert len(forms) == 3
    for path in forms:
        form = yaml_of(path.relative_to(repository))
        assert {"name", "description", "body"} <= set(form), path
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert all(field["attributes"]["label"] for field in fields), path
        assert {field["type"] for field in fields} <= {"input", "textarea", "dropdown", "checkboxes"}, path
        assert len({field["id"] for field in fields}) == len(fields), path


@pytest.mark.parametrize("name", ["ci", "release"])
def test_a_workflow_runs_what_is_in_the_repository(repository, yaml_of, name):
    text = (repository / f".github/workflows/{name}.yml").read_text()
    jobs = yaml_of(f".github/workflows/{name}.yml")["jobs"]
    run = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    programs = [command for command in run if command.startswith(".ci/")]
    assert programs and all((repository / program).stat().st_mode & 0o111 for program in programs)
    assert "secrets." not in text


def test_the_workflow_installs_the_makefiles_torch(repository):
    (wanted,) = re.findall(r"^TORCH \?= (\S+)$", (repository / "Makefile").read_text(), re.MULTILINE)
    assert f"pip install {wanted} " in (repository / ".github/workflows/ci.yml").read_text()


def test_only_a_tag_uploads_and_without_a_token(yaml_of):
    publish = yaml_of(".github/workflows/release.yml")["jobs"]["publish"]
    assert publish["if"] == "github.ref_type == 'tag'"
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}


def tracked(repository) -> set[str]:
    """What git keeps; in an sdist, which has no git, nothing can be compared."""
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a clone")
    return {name for name in listed.stdout.splitlines() if (repository / name).exists()}


# Distribution -> the module that it installs, where the names differ.
INSTALLS = {"nvidia-ml-py": "pynvml", "py-spy": "py_spy"}


def test_what_is_imported_with_a_module_is_a_dependency(modules, project, of_an_extra):
    declared = {re.match(r"[\w-]+", one)[0] for one in project["dependencies"]}
    allowed = {INSTALLS.get(name, name) for name in declared} | {"paceline"} | sys.stdlib_module_names
    wrong = set()
    for module in modules:
        if module.room not in ("worker", "comm", "trace"):
            here = allowed | of_an_extra.get(module.name, set())
            for node in module.tree.body:
                if isinstance(node, ast.Import):
                    wrong |= {(module.name, one.name) for one in node.names if one.name.partition(".")[0] not in here}
                elif isinstance(node, ast.ImportFrom) and not node.level and node.module.partition(".")[0] not in here:
                    wrong.add((module.name, node.module))
    assert not wrong, f"not in [project] dependencies: {sorted(wrong)}"
