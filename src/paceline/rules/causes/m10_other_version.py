"""M10: ranks run another version of the script, or of torch, TensorFlow or Python, than the others."""

from collections import Counter
from collections.abc import Iterator, Sequence

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import failures
from paceline.diagnosis.crash.rendezvous import Joined, joined
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.recording.rank_sets import named_ranks

TITLE = "code or libraries differ between ranks"
PAGE = """\
Code or libraries differ between ranks

What it means: A host has an older copy of the code, or another version of torch, TensorFlow or Python. At its
  rendezvous each rank reports the checksum of its script and its versions.
Why it matters: The ranks may agree for a while and then exchange different things. If there is an error, it is about
  sizes.
Deciding evidence: On some ranks the checksum of the script or of the modules beside it is different, or the version
  of torch, TensorFlow or Python is.
Not to be confused with: M09, where the same code builds different models.
What to do: Bring the same code and the same environment to every host: one image, one checkout, one lock file.
How to inject it: examples/broken/m10_other_version.py
Source: paceline/worker/rendezvous_identity.py.
"""


_WHAT = {
    "script_crc": "the script",
    "torch": "torch",
    "tensorflow": "TensorFlow",
    "code_crc": "modules beside the script",
    "python": "Python",
}
# A difference that may be harmless is a cause only if the job is in trouble.
_ALWAYS = ("script_crc",)


def find(case: Case) -> Iterator[CauseFinding]:
    found = [one for one in joined(case) if one.brought.get("script_crc")]
    if not found:
        if case.events and any(event.get("event") == "rank_joined" for event in case.events):
            raise Unknown("which code each rank runs")
        return
    trouble = bool(failures(case) or case.stall or case.divergences)
    for name, what in _WHAT.items():
        values = Counter(one.brought[name] for one in found if name in one.brought)
        if name == "code_crc" and len({one.brought.get("code_files") for one in found}) > 1:
            # A rank that imports one module more than the others does not have another version of it.
            continue
        if len(values) > 1 and (trouble or name in _ALWAYS):
            yield _finding(found, name, what)
            return


def _finding(found: Sequence[Joined], name: str, what: str) -> CauseFinding:
    values = [(one, one.brought[name]) for one in found if name in one.brought]
    counts = Counter(value for _, value in values)
    # If two versions are equally common, the version of the lowest rank counts as the right one.
    right = max(counts, key=lambda value: (counts[value], -min(one.rank for one, its in values if its == value)))
    odd = [one for one, value in values if value != right]
    ranks = sorted({one.rank for one in odd})
    sample = next(one for one, value in values if value == right)
    shown = odd[0].brought[name], right
    return CauseFinding(
        code="M10",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=tuple(ranks),
        hosts=tuple(dict.fromkeys(one.host for one in odd)),
        # Different modules or another Python may be harmless, so they must not displace a certain finding.
        confidence=Confidence.HIGH if name in ("script_crc", "torch", "tensorflow") else Confidence.UNCLEAR,
        saw=(
            f"{what} on {named_ranks(ranks)} ({shown[0]}) is not that of rank {sample.rank} on {sample.host} ({shown[1]})",
            *(
                f"{one.brought.get('script', 'the script')} on {one.host}: {name} {one.brought[name]}"
                for one in (odd[0], sample)
            ),
        ),
        next=("bring the same code and environment to every host: one image, one checkout, one lock file",),
    )


RULE = Cause(
    code="M10",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("M01", "M02", "M03", "M04", "M06", "M08", "M09"),
    sure_by=(Ground.EVENTS,),
)
