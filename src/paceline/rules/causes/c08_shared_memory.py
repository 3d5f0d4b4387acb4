"""C08: DataLoader workers had no room left in shared memory to hand their batches over."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, ended, failures, log_command, words_of
from paceline.diagnosis.crash.shared_memory import Shortage, out_of_files, shortage_line
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "/dev/shm is too small"
PAGE = """\
/dev/shm is too small

What it means: DataLoader workers pass tensors to the rank through files in /dev/shm, and /dev/shm is full. In a
  container it has 64 MiB unless a larger size was requested.
Why it matters: The message says "No space left on device" or "Bus error", although no disk is full.
Deciding evidence: The rank printed "unable to write to file </torch_...>: No space left on device (28)". If paceline
  could look at /dev/shm, its free space is shown. A worker's "Bus error" is likely this cause, because a truncated
  mapped file gives the same signal. "unable to open shared memory object" without a number fits C10 as well; then the
  finding is unclear.
Not to be confused with: C09, where a disk is full and the message names the user's own file; C10, where the error
  number is 24; C05.
What to do: Start the container with `docker run --shm-size=8g`. In Kubernetes, mount an emptyDir with medium Memory
  at /dev/shm. Or set num_workers=0, or call torch.multiprocessing.set_sharing_strategy("file_system") with room in
  TMPDIR.
How to inject it: examples/broken/c08_shared_memory.py (needs root)
Source: torch/utils/data/_utils/signal_handling.py; torch.multiprocessing, "Sharing strategies".
"""


_CONFIDENCE = {
    Shortage.ROOM: Confidence.HIGH,
    Shortage.ROOM_OR_FILE: Confidence.LIKELY,
    Shortage.EITHER: Confidence.UNCLEAR,
}


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in failures(case):
        shortage, line = shortage_line(words_of(case, exit))
        if shortage in _CONFIDENCE and not (shortage is Shortage.EITHER and out_of_files(case, exit.rank)):
            yield _finding(case, exit, line, _CONFIDENCE[shortage])


def _finding(case: Case, exit: RankExit, line: str, confidence: Confidence) -> CauseFinding:
    snapshot = case.host_snapshots.get(exit.host)
    shm = next((one for one in snapshot.filesystems if one.what == "shm"), None) if snapshot is not None else None
    room = (
        f"{shm.path} has {shm.free_bytes / 2**20:,.0f} of {shm.total_bytes / 2**20:,.0f} MiB free"
        if shm is not None
        else ""
    )
    if shm is not None and confidence is Confidence.UNCLEAR and shm.free_bytes < _NO_ROOM_BYTES:
        confidence = Confidence.LIKELY
    return crash(
        case,
        [exit],
        code="C08",
        title=TITLE,
        confidence=confidence,
        saw=(ended(exit), line, f"{room} on {exit.host}" if room else ""),
        ruled_out=("a full disk: the file that could not be written lies in shared memory",)
        if confidence is Confidence.HIGH
        else (),
        next=(
            f"run df -h /dev/shm and ulimit -n on {exit.host} while the job runs: the message fits both causes"
            if confidence is Confidence.UNCLEAR
            else "",
            "give the container more shared memory: docker run --shm-size=8g, or an emptyDir with medium Memory at /dev/shm",
            "until then: DataLoader(..., num_workers=0)",
            log_command(case, exit.rank),
        ),
    )


_NO_ROOM_BYTES = 1 << 20

RULE = Cause(
    code="C08",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("C01", "C05", "C09", "C12"),
    sure_by=(Ground.EXIT, Ground.WORDS),
)
