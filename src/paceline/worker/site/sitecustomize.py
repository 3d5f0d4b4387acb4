"""Runs in every Python process below a worker of `paceline run`, and waits there for `import torch`, `tensorflow` or `keras`, or for a
first `paceline.step()`.

Python's `site` imports this file because its directory is first on PYTHONPATH. This file removes the directory from `sys.path` again
(children find it through the environment), and installs one finder, one exit handler and one excepthook. Then it imports the
`sitecustomize` that would have been imported without it. Until then, this file loads nothing else of paceline, and uses only
modules that every Python has already loaded at that point.
"""

import atexit
import builtins
import os
import sys

# The path as `site` spelled it when it found this file. This avoids a disk access, because this file runs in every Python process.
_HERE = os.path.dirname(__file__)


def _ours(name):
    """paceline.<name>, loaded from beside this file and not from `sys.path`: paceline may not be installed in this Python."""
    import importlib

    return importlib.import_module(_package_name() + "." + name)


def _package_spec(name):
    import importlib.util

    directory = os.path.dirname(os.path.dirname(os.path.realpath(_HERE)))
    ours = os.path.join(directory, "__init__.py")
    return importlib.util.spec_from_file_location(name, ours, submodule_search_locations=[directory])


def _package_name():
    import importlib.util
    from importlib.machinery import PathFinder

    ours = _package_spec("paceline").origin
    for name in ("paceline", "_paceline_in_rank"):
        loaded = sys.modules.get(name)
        if loaded is not None and os.path.realpath(getattr(loaded, "__file__", None) or "") == ours:
            return name
        # If the user has a module with this name, it keeps the name.
        found = PathFinder.find_spec(name) if loaded is None else loaded.__spec__
        if found is None or os.path.realpath(found.origin or "") == ours:
            spec = _package_spec(name)
            package = importlib.util.module_from_spec(spec)
            sys.modules[name] = package
            spec.loader.exec_module(package)
            return name
    raise ImportError("no free name for paceline in this process")


class AfterImport:
    """A finder that finds nothing itself. It asks the other finders, and runs `after[name](module)` once the module was executed."""

    def __init__(self):
        self.after = {}
        self.before = dict.fromkeys(("torch", "tensorflow", "keras"), self.prepare)
        # What the framework would read if it were imported now.
        self.environment = dict(os.environ)

    def find_spec(self, name, path=None, target=None):
        if name not in self.after and name not in self.before:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                self._watch(name, spec)
                return spec
        return None

    def _watch(self, name, spec):
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module):
            try:
                del loader.exec_module
            except AttributeError:
                pass
            self._call(self.before.pop(name, None))
            execute(module)
            self._call(self.after.pop(name, None), module)

        try:
            # The function is set on the instance: the loader keeps its type, which importlib.resources and inspect look at.
            loader.exec_module = exec_module
        except AttributeError:
            pass

    def _call(self, function, *arguments):
        if function is None:
            return
        try:
            function(*arguments)
        except Exception as error:
            if _is_of_a_handler(error):
                raise
            self.report(error)

    def report(self, error):
        """Report to the agent that this process is not watched. Once the worker package is loaded, it reports to the ring instead."""
        try:
            with open(os.environ["PACELINE_ERROR_DIR"] + "/" + str(os.getpid()) + ".unwatched", "w") as file:
                file.write(type(error).__name__ + ": " + str(error))
        except Exception:
            pass

    def prepare(self):
        # One preparation serves all.
        self.before.clear()
        _ours("worker.bootstrap").prepare(self)


class Shim:
    """The last finder. If no `smdistributed` is installed, it finds paceline's package under that name. See parts/sagemaker/smdistributed.

    If no `paceline` is installed, it finds ours: a script may call `paceline.step()`.
    """

    # For paceline's own main programs, which are outside of the package.
    paceline_module = staticmethod(_ours)

    def find_spec(self, name, path=None, target=None):
        if name == "paceline":
            return _package_spec(name)
        if name.partition(".")[0] != "smdistributed":
            return None
        try:
            library = _ours("parts.sagemaker.smdistributed")
        except Exception as error:
            _finder.report(error)
            return None
        return library.find(name)


def _is_of_a_handler(error):
    """Whether a signal handler of the script's raised it, while this file was at work."""
    try:
        return _ours("worker.signal_handlers").is_of_a_handler(error)
    except Exception:
        return False


def _excepthook(type, value, traceback):
    try:
        _ours("worker.error_file").report(value)
    except Exception:
        pass
    if type is KeyboardInterrupt:
        # Python then ends itself with SIGINT, unless it has executed code from a string since, as the imports above do.
        try:
            exec("raise KeyboardInterrupt")
        except KeyboardInterrupt:
            pass
    _previous_excepthook(type, value, traceback)


def _at_exit():
    # Run only in the process that registered this handler: a forked child that exits with sys.exit also runs its parent's handlers.
    for name in ("paceline", "_paceline_in_rank"):
        leaving = sys.modules.get(name + ".worker.exit_handler")
        if leaving is not None:
            leaving.last_words()


def _same(line, source, frame=None):
    return source


def _nothing(line, last_line):
    pass


def _true(line):
    return True


def _first_step():
    """The first call of `paceline.step()` where no framework has come before. The instrument then takes this function's place."""
    builtins.__paceline_step__ = _no_step
    _finder._call(_finder.prepare)
    builtins.__paceline_step__()


def _no_step():
    pass


def _watch_socket():
    def patch(module):
        _ours("worker.host_aliases").patch_socket(module)

    _finder.after["socket"] = patch


def _join_jax():
    def register(module):
        _ours("parts.frameworks.jax_cluster").register(module)

    _finder.after["jax._src.clusters.cluster"] = register


def _hand_over():
    """Import the sitecustomize that ours hides. If it raises, `site` reports the exception as it would without paceline."""
    ourselves = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # importlib wants to find a module under the name that it imports.
        if ourselves is not None:
            sys.modules.setdefault(__name__, ourselves)


sys.path[:] = [entry for entry in sys.path if entry.rstrip(os.sep) != _HERE]
# The environment of the first Python of a rank. Python of another one is a tool that the rank uses, and finds what is installed there.
_of_rank = os.environ.setdefault("PACELINE_PREFIX", sys.prefix) == sys.prefix
_finder = AfterImport()
_off = os.environ.get("PACELINE_OFF", "").lower().replace(" ", "").split(",")
if os.environ.get("PACELINE_RUN_ID"):
    if _of_rank:
        sys.meta_path.append(Shim())
    # A function whose loops can go on after a restart may be sent to a process that has no such loops: parts/resume/worker/insert.py.
    builtins.__paceline_loop__ = _same
    builtins.__paceline_while__ = _nothing
    builtins.__paceline_again__ = _true
    if "all" in _off:
        _finder.before.clear()
    else:
        builtins.__paceline_step__ = _first_step
        if "exit" not in _off:
            atexit.register(_at_exit)
            if os.environ.get("PACELINE_ERROR_DIR"):
                _previous_excepthook = sys.excepthook
                sys.excepthook = _excepthook
    if os.environ.get("PACELINE_ADDRESSES"):
        _watch_socket()
    if os.environ.get("PACELINE_RANK_ADDRESSES"):
        _join_jax()
    if _finder.before or _finder.after:
        sys.meta_path.insert(0, _finder)
_hand_over()
