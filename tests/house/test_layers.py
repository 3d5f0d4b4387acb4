"""Arrows run one way, in the kernel and in each part.

parts -> api -> cli -> serve -> views of parts -> insides of parts -> attach -> launch, views -> rules -> diagnosis ->
recording, contract, probes -> catalog -> findings -> facts, errors
"""

import ast
import importlib.util
import subprocess
import sys

import pytest
from source_files import imported_module, room_of

FLOORS = (
    {
        "paceline",
        "facts",
        "errors",
        "terminal_text",
        "user_folders",
        "user_names",
        "own_program",
        "clone",
        "atomic_write",
        "mapped_memory",
        "namespaces",
        "backend_names",
        "prctl",
        "priority",
        "process_identity",
        "smdistributed_names",
        "spelling",
        "listening",
        "option",
    },
    {"findings", "job_file", "mounts"},
    {"catalog", "part"},
    {"recording", "contract", "probes", "storage"},
    {"diagnosis"},
    {"rules"},
    {"launch", "views"},
    {"attach"},
    {"insides of parts"},
    {"views of parts"},
    {"serve"},
    {"cli", "estimator"},
    {"api"},
    {"__main__"},
    {"parts"},
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

# What runs inside a rank stands beside the floors: these rooms import what is listed, and no other room imports them.
IN_A_RANK = {
    "worker": {
        "worker",
        "comm",
        "recording",
        "contract",
        "facts",
        "errors",
        "atomic_write",
        "mapped_memory",
        "backend_names",
        "process_identity",
        "smdistributed_names",
        "spelling",
        "insides of parts",
    },
    "comm": {"comm", "worker", "backend_names", "clone", "mapped_memory", "process_identity", "insides of parts"},
    "trace": {"trace"},
    "resume": {"resume"},
}

# Arrows that the floors do not allow: (module, what it imports) -> why it reads better so.
ALLOWED_ARROWS: dict[tuple[str, str], str] = {
    ("paceline", "paceline.api"): "its names are those of the package too, loaded when the first of them is asked for",
    (
        "paceline.parts.lab.rehearsal",
        "paceline.parts.lab.views.rehearse",
    ): "a size that failed is told in the words of the report",
    ("paceline.contract.local_key", "paceline.recording.plain_files"): "an entry may have been laid by somebody else",
    (
        "paceline.contract.tree",
        "paceline.recording.plain_files",
    ): "its folders, too, hold what is read back or executed",
    ("paceline.contract.failure", "paceline.recording.plain_files"): "where a script writes may be a pipe",
}

# What of `os` is the environment of this process.
ENVIRONMENT = ("environ", "environb", "getenv", "getenvb", "putenv", "unsetenv")
# Who may look at this process's environment variables; everyone else takes a Mapping. Rooms, then modules.
ROOMS_WITH_THE_ENVIRONMENT = {
    "cli": "the command line hands the environment on as a value",
    "worker": "inside a rank the environment is how the agent speaks to it",
}
ENVIRONMENT_DOORS = {
    "paceline.api.start": "for a program in Python it does what the command line does",
    "paceline.parts.plan.trace.script": "the script finds the variables that a launcher would give it",
    "paceline.parts.sagemaker.estimator.session": "the API has no command line; this module hands the environment on as a value",
    "paceline.parts.sagemaker.engine.entry": "a program of its own in a container, before paceline is there",
    "paceline.contract.prepare": "the default of an argument; callers hand in a Mapping",
    "paceline.recording.runs": "the default of an argument; callers hand in a Mapping",
    "paceline.launch.coordinator.pace_inputs": "a switch for whoever records stretches for the tests; nothing of a job depends on it",
    "paceline.launch.programs.engine_host": "whoever starts an agent over a connection tells it its environment there",
    "paceline.parts.engines.ray.agent_actor": "on a node of a cluster: what its worker process was given is all there is to hand on",
    "paceline.parts.engines.ray.cluster": "Ray takes its switches from the environment of its own process alone",
}

# Modules whose command lines let a Python import from the working directory: module -> why.
ALLOWED_FROM_THE_WORKING_DIRECTORY = {
    "paceline.contract.entry": "the user's own program, as torchrun starts it",
    "paceline.own_program": "its code takes the directory away: the ranks' Python may not know -P",
    "paceline.parts.plan.trace_script": "likewise, before anything else is imported",
}

# Modules outside cli that may print: module -> why.
ALLOWED_PRINTS: dict[str, str] = {
    "paceline.parts.sagemaker.estimator.console": "fit() prints status and output into a notebook or a script, as SDK v2's does",
}

# Where a rank has TensorFlow, which brings numpy, in place of torch.
FOR_TENSORFLOW = ("paceline.parts.sagemaker.smdistributed.tensorflow.", "paceline.parts.frameworks.parameter_server")
# Rooms of a rank may load what is listed, besides the standard library, torch and us.
ALLOWED_IN_A_RANK = {
    ("paceline.worker.site.sitecustomize", "sitecustomize"): "hands over to the one that was there before",
    (
        "paceline.parts.comm.mpi.world",
        "mpi4py",
    ): "the extra [mpi], imported only where the backend over MPI is asked for",
}
STANDARD_LIBRARY_ONLY = (
    *(f"paceline.recording.{name}" for name in ("ring", "exchanges", "string_table", "plain_files")),
    *(
        f"paceline.parts.comm.transports.shared_memory.{name}"
        for name in ("arrays", "collectives", "connect", "host_ranks", "segment", "sync")
    ),
    "paceline.parts.comm.transports.peers",
    "paceline.atomic_write",
    "paceline.mapped_memory",
    "paceline.backend_names",
    "paceline.process_identity",
    "paceline.smdistributed_names",
    "paceline.spelling",
    "paceline.parts.resume.loops_in_source",
)


def test_every_room_has_a_floor(modules):
    unknown = {module.room for module in modules} - set(FLOOR) - set(IN_A_RANK)
    assert not unknown, f"give these rooms a floor in FLOORS: {sorted(unknown)}"


def test_imports_only_point_downwards(modules):
    names = {module.name for module in modules}
    wrong = []
    for module in modules:
        for found in module.imports:
            target = imported_module(found, names)
            if target and not arrow_is_allowed(module.room, room_of(target)):
                if (module.name, target) not in ALLOWED_ARROWS:
                    wrong.append(f"{module.name}:{found.line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_programs_are_started_from_above(modules):
    started = {
        (module.name, found.module)
        for module in modules
        for found in module.started
        if found.module in {other.name for other in modules}
    }
    upwards = {
        f"{source} starts {target}"
        for source, target in started
        if room_of(target) not in IN_A_RANK and not arrow_is_allowed(room_of(source), room_of(target))
    }
    assert not upwards


def test_no_module_reaches_itself_in_a_circle(modules):
    circle = first_circle(arrows_between(modules))
    assert circle is None, " -> ".join(circle or ())


@pytest.mark.parametrize("room", sorted(set(FLOOR) | set(IN_A_RANK)))
def test_no_folder_of_a_room_reaches_itself_in_a_circle(modules, room):
    arrows: dict[str, set[str]] = {}
    for source, targets in arrows_between(modules).items():
        for target in targets:
            if room_of(source) == room_of(target) == room and folder_of(source) != folder_of(target):
                arrows.setdefault(folder_of(source), set()).add(folder_of(target))
    circle = first_circle(arrows)
    assert circle is None, " -> ".join(circle or ())


def test_no_two_classes_that_others_import_share_a_name(modules):
    homes: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module.name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_the_server_of_pages_reads_recordings_and_starts_nothing(modules):
    wrong = [
        f"{module.name}:{found.line}"
        for module in modules
        if module.room == "serve"
        for found in module.imports
        if found.module.startswith("paceline.launch")
    ]
    assert not wrong, wrong


def test_torch_is_imported_only_inside_a_rank(modules):
    wrong = [
        f"{module.name}:{found.line}"
        for module in modules
        if module.room not in IN_A_RANK
        for found in module.imports
        if found.module.split(".")[0] == "torch"
    ]
    assert not wrong, wrong


def test_a_rank_loads_only_the_standard_library_and_its_framework(modules):
    in_a_rank = [module for module in modules if module.room in IN_A_RANK or module.name in STANDARD_LIBRARY_ONLY]
    wrong = [
        f"{module.name}:{found.line} imports {found.module}"
        for module in in_a_rank
        for found in module.imports
        if (module.name, found.module) not in ALLOWED_IN_A_RANK
        if (
            (top := found.module.split(".")[0]) not in sys.stdlib_module_names | {"paceline", "torch"}
            and not (top in ("tensorflow", "numpy") and module.name.startswith(FOR_TENSORFLOW))
        )
        or (top == "torch" and module.name in STANDARD_LIBRARY_ONLY)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_environment_is_read_at_few_doors(modules):
    wrong = [
        f"{module.name}:{line}"
        for module in modules
        if module.room not in ROOMS_WITH_THE_ENVIRONMENT and module.name not in ENVIRONMENT_DOORS
        for line in lines_with_the_environment(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_line_prints(modules):
    wrong = [
        f"{module.name}:{line}"
        for module in modules
        if module.room != "cli" and module.name not in ALLOWED_PRINTS
        for line in lines_that_print(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_program_of_ours_imports_what_lies_in_the_working_directory(modules):
    wrong = [
        f"{module.name}:{line}"
        for module in modules
        if module.name not in ALLOWED_FROM_THE_WORKING_DIRECTORY
        for line in lines_that_start_python_unsafely(module)
    ]
    assert not wrong, "-P before -m or -c: " + ", ".join(wrong)


def test_every_exception_in_these_tables_is_still_needed(modules):
    by_name = {module.name: module for module in modules}
    imported = {(module.name, found.module) for module in modules for found in module.imports}
    arrows = {(module.name, imported_module(found, by_name)) for module in modules for found in module.imports}
    upwards = {arrow for arrow in arrows if arrow[1] and not arrow_is_allowed(*map(room_of, arrow))}
    printing = {module.name for module in modules if lines_that_print(module)}
    doors = {module.name for module in modules if lines_with_the_environment(module)}
    unsafe = {module.name for module in modules if lines_that_start_python_unsafely(module)}
    gone = [
        *(ALLOWED_ARROWS.keys() - upwards),
        *(ALLOWED_IN_A_RANK.keys() - imported),
        *(ALLOWED_PRINTS.keys() - printing),
        *(ENVIRONMENT_DOORS.keys() - doors),
        *(ALLOWED_FROM_THE_WORKING_DIRECTORY.keys() - unsafe),
        *(set(STANDARD_LIBRARY_ONLY) - by_name.keys()),
    ]
    assert not gone, gone


@pytest.mark.process
def test_the_whole_command_line_loads_without_torch(modules, user_environment, of_an_extra):
    assert importlib.util.find_spec("torch"), "this test means nothing where there is no torch to import"
    absent = {name for name, needs in of_an_extra.items() if not all(map(importlib.util.find_spec, needs))}
    left_out = absent | {"paceline.__main__"}
    outside = [module.name for module in modules if module.room not in IN_A_RANK and module.name not in left_out]
    program = f"import importlib, sys\nfor name in {outside!r}: importlib.import_module(name)\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], env=user_environment, check=False).returncode == 0


def arrows_between(modules) -> dict[str, set[str]]:
    """Which modules of ours each one imports, or starts by name."""
    names = {module.name for module in modules}
    return {
        module.name: {
            target for found in (*module.imports, *module.started) if (target := imported_module(found, names)) in names
        }
        # The package has its names of `paceline.api` only when it is asked for them.
        - {module.name, *(["paceline.api"] if module.name == "paceline" else [])}
        for module in modules
    }


def folder_of(name: str) -> str:
    """The folder or the file that a module is in, directly below its room."""
    return ".".join(name.split(".")[:3])


def arrow_is_allowed(source: str, target: str) -> bool:
    if source == target or target == "paceline":
        return True
    if source in IN_A_RANK:
        return target in IN_A_RANK[source]
    return target not in IN_A_RANK and FLOOR.get(target, 99) < FLOOR.get(source, -1)


def lines_with_the_environment(module) -> list[int]:
    """Where a module looks at this process's environment: `os.environ`, or under a name that it imports."""
    looked_at = [
        node.lineno for node in ast.walk(module.tree) if isinstance(node, ast.Attribute) and is_environment(node)
    ]
    return looked_at + [found.line for found in module.imports if found.module == "os" and found.name in ENVIRONMENT]


def is_environment(node: ast.Attribute) -> bool:
    return node.attr in ENVIRONMENT and isinstance(node.value, ast.Name) and node.value.id == "os"


def lines_that_print(module) -> list[int]:
    calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def lines_that_start_python_unsafely(module) -> list[int]:
    """Command lines of a Python with -m or -c, and neither -P nor -I before it: its sys.path begins with the working directory."""
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.List | ast.Tuple):
            words = [ast.unparse(word) for word in node.elts]
            options = [word.strip("'") for word in words]
            chosen = next((at for at, word in enumerate(options) if word in ("-m", "-c")), 0)
            if any(word.endswith(("python", "sys.executable")) for word in words[:chosen]):
                found += [] if {"-P", "-I"} & set(options[:chosen]) else [node.lineno]
    return found


def first_circle(arrows: dict[str, set[str]]) -> list[str] | None:
    finished: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str] | None:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in finished:
            return None
        for target in sorted(arrows.get(name, ())):
            if circle := walk(target, [*way, name]):
                return circle
        finished.add(name)
        return None

    return next((circle for name in sorted(arrows) if (circle := walk(name, []))), None)


def test_a_circle_would_be_found():
    assert first_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert first_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_an_upward_arrow_would_be_found():
    assert not arrow_is_allowed("facts", "cli")
    assert not arrow_is_allowed("cli", "worker")
    assert not arrow_is_allowed("recording", "contract")
    assert not arrow_is_allowed("worker", "launch")
    assert arrow_is_allowed("cli", "views")
    assert arrow_is_allowed("worker", "recording")
