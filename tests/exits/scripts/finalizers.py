"""Writes in a weakref.finalize and in the destructors of an object of the script and of one of a module."""

import sys
import types
import weakref

from way_out import stage, train


class Logger:
    def __init__(self, name: str, stage) -> None:
        # Of its own, because the names of a module are gone by the time that its last objects are.
        self.name, self.stage = name, stage

    def __del__(self) -> None:
        self.stage(self.name)


kept = Logger("destructor", stage)
module = sys.modules["kept_to_the_end"] = types.ModuleType("kept_to_the_end")
module.logger = Logger("last destructor", stage)
weakref.finalize(kept.__class__, stage, "finalize")
model = train()
