"""N05: a rank compiles while the others wait."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.hang.lagging_ranks import LaggingRank, late_ranks, need_snapshots
from paceline.diagnosis.stacks import is_compiling, place_of, site_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Level
from paceline.recording.rank_sets import named_ranks

PAGE = """\
A rank compiles while the others wait

What it means: On some of the ranks torch.compile builds or rebuilds a graph, or a C++ or CUDA extension or kernel is
  compiled. The cache of these ranks is cold, their shapes differ, or they reached new code first.
Why it matters: A cold compile takes minutes. The other ranks spend these minutes in a collective with a timeout.
Deciding evidence: The rank is behind the others. Its stack is in torch/_dynamo, torch/_inductor or triton, or a
  compiler (gcc, g++, ptxas, nvcc) runs as its child process.
Not to be confused with: N06 (the rank uses CPU in the user's own code); N04 (other long work).
What to do: Let every rank compile before the first collective: run one warm-up step, then a barrier. Share the cache
  (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR), pad batches to one shape, or mark sizes as dynamic.
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n05_compiling.py`, then `paceline why`.
Source: torch.compile, TORCHINDUCTOR_CACHE_DIR; TORCH_LOGS=recompiles says why a graph is built again.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks inside a compiler that other ranks wait for."""
    for late in late_ranks(case):
        if late.is_free and late.stall.waiting and is_compiling(late.snapshot):
            yield _finding(late)
    need_snapshots(case)


def _finding(late: LaggingRank) -> CauseFinding:
    compilers = [child for child in late.snapshot.children or () if child.role == "compiler"]
    users = late.users
    again = (late.stall.since_step or 0) > 1
    return CauseFinding(
        code="N05",
        title=f"rank {late.rank} {'compiles again' if again else 'compiles'} while the others wait",
        level=late.level,
        ranks=(late.rank,),
        confidence=Confidence.HIGH if late.is_busy else Confidence.LIKELY,
        since_step=late.stall.since_step,
        saw=(
            f"the main thread of rank {late.rank} is {place_of(late.snapshot)}",
            *((f"below it runs {compilers[0].name} (pid {compilers[0].pid})",) if compilers else ()),
            late.how_late,
            late.activity,
        ),
        ruled_out=("not a loop of its own code: the stack is in the compiler",),
        next=(
            *((f"{site_of(users)}: run one warm-up step on every rank, then a barrier",) if users else ()),
            "share the cache between ranks: TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR",
            f"TORCH_LOGS=recompiles shows why {named_ranks([late.rank])} builds a graph again",
        ),
    )


RULE = Cause(
    code="N05",
    title="compile on some ranks",
    page=PAGE,
    find=find,
    levels=(Level.STALL, Level.WAITING),
    beats=("N01", "N04", "N06"),
    sure_by=(Ground.SNAPSHOT,),
)
