"""The process groups of comm, which are written in Python. C++ calls their methods, so the instruments watch each of their classes."""

import sys
from typing import TypeVar

# The name under which this package was loaded.
OUR_ROOM = f"{__package__.rpartition('.')[0]}.parts.comm."
# The module of comm's process groups.
MODULES = (f"{OUR_ROOM}backend.process_group", f"{OUR_ROOM}mpi.process_group")
T = TypeVar("T")


def is_ours(group_class: type) -> bool:
    """Whether C++ calls Python methods for the operations of such a group.

    Holds:   False for every process group class of torch
    """
    return group_class.__module__.startswith(OUR_ROOM)


def loaded_classes(base: type[T]) -> set[type[T]]:
    """The classes below `base` in the modules of comm that are loaded."""
    modules = [module for name, module in tuple(sys.modules.items()) if name.startswith(OUR_ROOM)]
    members = [member for module in modules for member in tuple(vars(module).values())]
    return {member for member in members if isinstance(member, type) and issubclass(member, base) and is_ours(member)}
