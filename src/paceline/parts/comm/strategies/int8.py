"""`int8`: sends 8-bit integers and one float32 scale per block, with error feedback.

Each block of 256 elements is scaled so that its largest absolute value becomes 127, and rounded to nearest. The rank that wrote the message
keeps the rounding error in float32 and adds it to the next message: nothing is lost, it only arrives later. Every message of the exchange
is treated so: the parts that a rank sends, the partial sums of a ring, and the sum that an owner sends back.

Convergence: a student network on 4 ranks, 120 steps of SGD with momentum (tests/parts/comm/strategy_convergence.py), held-out loss relative
to plain DDP, mean of 2 seeds: 0.9999 under `direct`, 1.0000 under `ring`; the test's limit is 1.01.
"""

from __future__ import annotations

import torch

_SCALE_BYTES = 4


class Int8:
    """The codec. `block`: number of elements that share a scale.

    Bytes:   1 + 4 / block per element: 25.4 % of float32 with blocks of 256
    Holds:   one exchange: each message is within scale / 2 = (largest of the block) / 254 of what was to be written; over k steps of equal
             gradients the sum of the results is within one step's error of the sum of the plain averages, whatever k
    A block with an infinity or a NaN is decoded as NaN, as a loss scaler expects; its error starts again at zero.
    """

    name = "int8"
    is_exact = False
    has_feedback = True

    def __init__(self, block: int = 256) -> None:
        self.block = block
        self.align = block

    def message_bytes(self, numel: int, dtype: torch.dtype) -> int:
        """The bytes of the scales and of the elements; the scales come first."""
        return -(-numel // self.block) * _SCALE_BYTES + numel

    def write(self, values: torch.Tensor, error: torch.Tensor | None) -> torch.Tensor:
        """The message as uint8."""
        numel = values.numel()
        blocks = -(-numel // self.block)
        wanted = values.new_zeros(blocks * self.block, dtype=torch.float32)
        if error is None:
            wanted[:numel].copy_(values)
        else:
            torch.add(error, values, out=wanted[:numel])
        rows = wanted.view(blocks, self.block)
        message = values.new_empty(self.message_bytes(numel, values.dtype), dtype=torch.uint8)
        scales, whole = self._parts(message, numel)
        torch.linalg.vector_norm(rows, float("inf"), dim=1, out=scales)
        scales.div_(127.0)
        # The reciprocal of a smaller scale would be infinite. The whole block then stays in the error.
        scales.masked_fill_(scales < torch.finfo(torch.float32).tiny, 0.0)
        inverse = scales.reciprocal().masked_fill_(scales == 0, 0.0).unsqueeze_(1)
        steps = torch.mul(rows, inverse).round_()
        whole.copy_(steps.view(-1)[:numel])
        if error is not None:
            torch.addcmul(rows, steps, scales.unsqueeze(1), value=-1, out=rows)
            torch.nan_to_num(wanted[:numel], nan=0.0, posinf=0.0, neginf=0.0, out=error)
        return message

    def read(self, message: torch.Tensor, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """The values in float32."""
        scales, whole = self._parts(message, numel)
        full = numel // self.block * self.block
        values = message.new_empty(numel, dtype=torch.float32)
        torch.mul(
            whole[:full].view(-1, self.block),
            scales[: full // self.block].unsqueeze(1),
            out=values[:full].view(-1, self.block),
        )
        if full < numel:
            torch.mul(whole[full:], scales[-1], out=values[full:])
        return values

    def _parts(self, message: torch.Tensor, numel: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = -(-numel // self.block) * _SCALE_BYTES
        return message[:at].view(torch.float32), message[at : at + numel].view(torch.int8)
