"""Kills the process that saves the state, while ranks go on, and looks after each kill at what `--resume` would load.

Shared by tests/parts/resume/agent/test_saver_process.py and bench/saver_kills.py.
"""

import json
import os
import random
import select
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from kept_state import COUNT, TENSOR_BYTES, Rank, complete
from patience import patient

from paceline.facts import Job, Program, ProgramKind
from paceline.parts.resume.agent.saved_job import facts_of
from paceline.parts.resume.agent.saver_process import SaverOrder
from paceline.parts.resume.recording.saved_state import MANIFEST
from paceline.parts.resume.recording.state_buffer import DOCUMENT, SLOT_AT, StateHeader, unpacked
from paceline.parts.resume.resume_from import load_state
from paceline.parts.resume.state_store import state_store

RANKS = 2
PACE_SECONDS = 0.002
_PYTHON = sys.version.split()[0]
# More than a saver can make before it is killed.
_SAVES = 200


class Saver:
    """The process, seen as its agent sees it."""

    def __init__(self, ranks, place, job, pause_seconds=3600.0, environment=None, **order):
        order = SaverOrder(tuple(rank.descriptor for rank in ranks), str(place), job, pause_seconds, **order)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "paceline.parts.resume.agent.saver_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=order.descriptors,
            env={**os.environ, **(environment or {})},
        )
        self.process.stdin.write(msgspec.json.encode(order) + b"\n")
        self.process.stdin.flush()

    def ask(self, what, times=1):
        self.process.stdin.write((json.dumps(what).encode() + b"\n") * times)
        self.process.stdin.flush()

    def answer(self):
        assert select.select([self.process.stdout], [], [], patient(60))[0], "no answer"
        return json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Writer:
    """Ranks in a process of their own, which keep one step after the other."""

    def __init__(self, ranks):
        descriptors = [rank.descriptor for rank in ranks]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *map(str, descriptors)], pass_fds=descriptors, stdin=subprocess.PIPE
        )

    def close(self):
        self.process.communicate()


@dataclass
class Found:
    """What was found after the kills."""

    kills: int = 0
    mid_save: int = 0
    """Kills after which a half-written save was lying there."""
    newest: int = 0
    """The step that `--resume` loads."""
    most_bytes: int = 0
    """The most that the place ever held."""
    most_files: int = 0
    ages: list[int] = field(default_factory=list)
    """Steps that the ranks were ahead of the loaded one, at each kill."""

    def __str__(self):
        return (
            f"{self.kills} kills, {self.mid_save} of them in a save: every loaded step was whole and none older than the one before; "
            f"at most {self.most_files} files, {self.most_bytes} bytes; behind the ranks by {statistics.median(self.ages):.0f} steps of "
            f"{PACE_SECONDS * 1000:.0f} ms (median; at most {max(self.ages)})"
        )


def kill_savers(folder, kills, seed, tell=lambda found: None):
    """Kill so many savers one after the other, at random moments of their saves. Raises AssertionError at the first wrong step."""
    script = folder / "train.py"
    script.write_text("a script")
    place = folder / "state"
    job = Job(
        name="j",
        program=Program(kind=ProgramKind.SCRIPT, target=str(script)),
        ranks_per_host=RANKS,
        resume=True,
        resume_from=str(place),
        resume_anyway=True,
    )
    facts = facts_of(job, "r-1", "7")
    ranks = [Rank(python=_PYTHON) for _ in range(RANKS)]
    for rank in ranks:
        rank.keep(1)
    writer = Writer(ranks)
    chance, found = random.Random(seed), Found()
    try:
        for _ in range(kills):
            saver = Saver(ranks, place, facts, pause_seconds=0.0)
            # Else most of the time it would wait for the next save.
            saver.ask("now", _SAVES)
            # A slot that is overwritten while it is read gives no save. What a killed saver left half is removed by the next whole one.
            while saver.answer().get("step") is None:
                pass
            time.sleep(chance.uniform(0.0, 0.08))
            saver.kill()
            _look(found, place, job, folder, ranks)
            tell(found)
    finally:
        writer.close()
        for rank in ranks:
            os.close(rank.descriptor)
    return found


def _look(found, place, job, folder, ranks):
    found.kills += 1
    entries = [path for path in Path(place).rglob("*") if path.is_file()]
    steps = complete(state_store(str(place)))
    named = {f"step-{step}/{file.name}" for step, manifest in steps.items() for file in manifest.files}
    named |= {f"step-{step}/{MANIFEST}" for step in steps}
    rest = [path for path in entries if str(path.relative_to(place)) not in named]
    found.mid_save += bool(rest)
    # Two that are kept, and one that was complete when its saver was killed; of half ones, what one saver leaves.
    assert 1 <= len(steps) <= 3 and len(rest) <= 2 * RANKS + 1, (sorted(steps), rest)
    found.most_files = max(found.most_files, len(entries))
    found.most_bytes = max(found.most_bytes, sum(path.stat().st_size for path in entries))
    loaded = load_state(job, {}, folder)
    try:
        assert not any("F04" in notice for notice in loaded.notices), loaded.notices
        assert loaded.step == max(steps) >= found.newest, (loaded.step, sorted(steps), found.newest)
        for local_rank in range(RANKS):
            _require_content(StateHeader(os.dup(loaded.states.descriptor(local_rank))), loaded.step)
    finally:
        loaded.states.close()
    found.newest = loaded.step
    found.ages.append(max(ranks[0].header.steps()) - loaded.step)


def _require_content(header, step):
    try:
        (slot,) = header.slots()
        assert (slot.step, slot.tensor_bytes, slot.batch_crc) == (step, TENSOR_BYTES, step)
        assert os.pread(header.descriptor, 4 * COUNT, SLOT_AT[slot.number]) == step.to_bytes(4, "little") * COUNT
        assert unpacked(header.plain(slot))[DOCUMENT.index("extra")] == step
    finally:
        os.close(header.descriptor)


def _write(descriptors):
    ranks = [Rank(python=_PYTHON, descriptor=descriptor) for descriptor in descriptors]
    step = 1
    while not select.select([sys.stdin], [], [], PACE_SECONDS)[0]:
        step += 1
        for rank in ranks:
            rank.begin(step % 2)
        for rank in ranks:
            rank.seal(step, step % 2)


if __name__ == "__main__":
    _write([int(word) for word in sys.argv[1:]])
