"""`import smdistributed.dataparallel.torch.torch_smddp`: makes the backend `smddp` known to torch.distributed, as that import always did.

In a job it is known already, for scripts that forget the import.
"""

from ...comm import backends
from ..host_identity import host_key

__all__: list[str] = []

backends.register(host_key)
