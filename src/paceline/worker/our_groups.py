"""The process groups of comm, which are written in Python: C++ calls their methods, so each of their classes is watched by itself."""

import sys
from typing import TypeVar

# By whatever name this package was loaded.
OUR_ROOM = f"{__package__.rpartition('.')[0]}.comm."
# Where the process groups are.
MODULES = (f"{OUR_ROOM}backend.process_group", f"{OUR_ROOM}mpi.process_group")
T = TypeVar("T")


def is_ours(group_class: type) -> bool:
    """Whether C++ comes back to Python for what is asked of such a group.

    Holds:   False for every class of torch's own
    """
    return group_class.__module__.startswith(OUR_ROOM)


def loaded_classes(base: type[T]) -> set[type[T]]:
    """The classes below `base` in the modules of comm that are loaded."""
    modules = [module for name, module in tuple(sys.modules.items()) if name.startswith(OUR_ROOM)]
    members = [member for module in modules for member in tuple(vars(module).values())]
    return {member for member in members if isinstance(member, type) and issubclass(member, base) and is_ours(member)}
