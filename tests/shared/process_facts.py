"""What a main program can see of its process: a text that a script runs, and that leaves `facts`, a dict for JSON."""

FACTS = """
import gc, json, os, signal, sys, threading, traceback
import numpy, random
main = sys.modules["__main__"]
facts = {
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path, "flags": repr(sys.flags), "executable": sys.executable,
    "main": sorted(name for name in vars(main) if name.startswith("__")), "file": main.__file__,
    "spec": repr(main.__spec__).partition(" at 0x")[0],
    "loader": type(main.__loader__).__name__, "package": main.__package__, "name": __name__, "annotations": main.__annotations__,
    "environ": dict(os.environ), "cwd": os.getcwd(), "umask": os.umask(0o22), "session": os.getsid(0) == os.getpid(),
    "group": os.getpgid(0) == os.getpid(), "policy": os.sched_getscheduler(0), "nice": os.nice(0), "cpus": sorted(os.sched_getaffinity(0)),
    "threads": [thread.name for thread in threading.enumerate()], "gc": gc.isenabled(), "thresholds": gc.get_threshold(),
    "signals": [str(signal.getsignal(number)).partition(" at ")[0] for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "stdio": [(one.fileno(), one.isatty(), one.encoding, one.errors, one.write_through) for one in (sys.stdout, sys.stderr)],
    "descriptors": sorted(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in "012"),
    "hook": sys.excepthook.__name__, "warnings": len(__import__("warnings").filters),
    "trace": traceback.format_stack()[-1].splitlines()[0], "path_hooks": len(sys.path_hooks), "finders": len(sys.meta_path),
}
"""
