"""`bf16`: sends 16-bit floats instead of float32 or float64; sums are computed in float32.

torch's own bf16 hook adds in bf16 and refuses to run on a CPU. Here every message is rounded once when it is sent, and the sum once more.
So under `direct` the error of an average does not grow with the number of ranks. In a ring, each hop rounds the partial sum.

Convergence: a student network on 4 ranks, 120 steps of SGD with momentum (tests/parts/comm/strategy_convergence.py), held-out loss relative
to plain DDP, mean of 2 seeds: 0.9999 under `direct`, 0.9997 under `ring`; the test's limit is 1.01.
"""

from __future__ import annotations

import torch


class Bf16:
    """The codec.

    Holds:   under `direct` and `parameter_server`: |result - plain| <= 2^-8 (mean of |gradients| of the ranks + |plain|), element by
             element: one rounding on each way; under `ring`: at most as many roundings as ranks
    Range:   the range of float32, so nothing overflows that would not overflow in float32
    """

    name = "bf16"
    is_exact = False
    has_feedback = False
    align = 16

    def message_bytes(self, numel: int, dtype: torch.dtype) -> int:
        """Two bytes per element."""
        return 2 * numel

    def write(self, values: torch.Tensor, error: torch.Tensor | None) -> torch.Tensor:
        """Round to nearest, ties to even."""
        return values.to(torch.bfloat16)

    def read(self, message: torch.Tensor, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """The values in float32."""
        return message.view(torch.bfloat16)[:numel].float()
