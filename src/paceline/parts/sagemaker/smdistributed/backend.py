"""`import smdistributed.dataparallel.torch.torch_smddp` makes the backend `smddp` known to torch.distributed, as it does in AWS's library.

In a job the backend is already known, for scripts that forget the import.
"""

from ....worker.host_identity import host_key
from ...comm import backends

__all__: list[str] = []

backends.register(host_key)
