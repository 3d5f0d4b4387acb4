"""N04: rank 0 tokenises and writes a corpus on its own, which takes a minute, and the others wait at a barrier.

paceline run --nproc-per-node 2 examples/broken/n04_long_work.py --rank 0
"""

import tempfile
import time

import torch.distributed as dist
from training import Training, arguments


def tokenise_corpus(seconds: float) -> None:
    """Words to numbers, into a file that is removed with the process."""
    vocabulary: dict[str, int] = {}
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile() as file:
        document = 0
        while time.monotonic() < end:
            words = [f"word{(document * 31 + index) % 5000}" for index in range(20_000)]
            tokens = [vocabulary.setdefault(word, len(vocabulary)) for word in words]
            file.seek(document % 64 * 80_000)
            file.write(b"".join(token.to_bytes(4, "little") for token in tokens))
            document += 1


args = arguments(__doc__, seconds=60)
with Training(args) as training:
    for step in training.steps():
        if step == args.at_step:
            if training.is_broken:
                tokenise_corpus(args.seconds)
            dist.barrier()
        training.step()
