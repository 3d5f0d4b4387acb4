"""Which tensors ranks may have of their own where another number of ranks goes on from their state."""

import pytest
from kept_state import Rank

from paceline.parts.resume.agent.save_newest_step import StateSaving
from paceline.parts.resume.recording.saved_state import JobFacts
from paceline.parts.resume.recording.state_piece import checksums_of, header_of
from paceline.parts.resume.replicas import difference
from paceline.parts.resume.saved_steps import saved_steps
from paceline.parts.resume.state_store import state_store


class OneTensor(Rank):
    """A rank with one tensor of two numbers, or of one, and a model of which that is a buffer, or not."""

    def __init__(self, value, *, count=2, is_buffer=False):
        super().__init__()
        self.value, self.count, self.is_buffer = value, count, is_buffer

    def document(self, step):
        tensor = ("tensor", [0, 0, "uint8", (self.count,), None, "cpu", False, False, 0, 0])
        module = ("module", ["M", True, {}, {"mean": (1,)}, {}, {}, []])
        nodes = [module if self.is_buffer else ("dict", [None, ["x", (1,)]]), tensor]
        return super().document(step) | {"described": [("uint8", (self.count,))], "nodes": nodes}

    def tensors(self, step):
        return bytes([self.value] * self.count)


@pytest.mark.parametrize(
    ("values", "options", "text"),
    [
        ((4, 4, 4), {}, None),
        ((4, 4, 5), {}, "rank 2 has another value than rank 0 in a tensor of its own (uint8, [2])"),
        ((4, 4, 5), {"is_buffer": True}, None),
        ((4, 5), {"count": 1}, None),
    ],
)
def test_only_buffers_and_single_numbers_may_be_each_ranks_own(tmp_path, values, options, text):
    ranks = [OneTensor(value, **options) for value in values]
    for rank in ranks:
        rank.keep(3)
    store = state_store(str(tmp_path))
    StateSaving([rank.descriptor for rank in ranks], store, JobFacts("r-1", "/t.py", "", "7")).save()
    ((manifest,), _) = saved_steps(store)
    assert difference(store, manifest) == text


def test_the_checksum_of_each_tensor_depends_on_its_bytes_alone():
    described = [("uint8", (2,)), ("uint8", (0,)), ("int32", (1,))]
    content = header_of(described) + b"ab" + b"wxyz"
    whole = checksums_of(iter([content]))
    assert len(whole) == 3 and whole == checksums_of(iter([content[:9], content[9:-3], content[-3:]]))
    assert whole[0] == checksums_of(iter([header_of(described[:1]) + b"ab"]))[0]
