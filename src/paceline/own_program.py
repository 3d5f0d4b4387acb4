"""Command lines of our own programs in the ranks' interpreter: what lies in the working directory is not imported by them."""

# The option -P does the same, since Python 3.11; the ranks' Python may be an older one. Nothing was imported from there before.
_LEAVE = "import sys\nif sys.path[:1] == ['']: del sys.path[0]\n"


def code_argv(python: str, code: str) -> list[str]:
    """The command line that runs this code."""
    return [python, "-c", _LEAVE + code]


def module_argv(python: str, module: str, *arguments: str) -> list[str]:
    """The command line that runs a module as `python -m` does."""
    run = f"import runpy\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [*code_argv(python, run), *arguments]
