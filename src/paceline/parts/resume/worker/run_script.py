"""Runs the program of a rank that can resume: `python -u run_script.py SCRIPT ARGS...` or `python -u run_script.py -m MODULE ARGS...`.

The program finds what it would find without this file in front, but the loops of the user's own files can go on after a restart. Where that
cannot be, because there is no state buffer or the script cannot be read, this process becomes `python -u SCRIPT ARGS...` itself.
"""

import os
import sys

_LOADED = set(sys.modules)


def main() -> None:
    """Run the program. Returns when it has ended."""
    options, argv = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)], sys.argv[1:]
    # Python puts the directory of this file first, and its names are those of paceline's modules.
    if not sys.flags.safe_path:
        del sys.path[0]
    # Set by sitecustomize, which knows under which name paceline is loaded in this process.
    ours = next((finder.paceline_module for finder in sys.meta_path if hasattr(finder, "paceline_module")), None)
    if ours is not None and "PACELINE_STATE_FD" in os.environ:
        program, resume, insert = (
            ours("worker.program"),
            ours("parts.resume.worker"),
            ours("parts.resume.worker.insert"),
        )
        first = program.first_path(argv)
        code, can_run = None, True
        if argv[0] != "-m":
            try:
                code = insert.code_of(argv[0])
            except (OSError, SyntaxError, ValueError):
                can_run = False
        # A module that is loaded already hides the user's own of that name.
        if can_run and not program.hidden_by(first, set(sys.modules) - _LOADED):
            if not sys.flags.safe_path:
                sys.path.insert(0, first)
            program.run(argv, options, lambda argv: resume.before_program(argv, code))
            return
    os.execv(sys.executable, [sys.orig_argv[0], *options, *argv])


main()
