"""Names that scripts look for in smdistributed's module or in torch.distributed, and that no release of either had. Standard library only.

Most are names of Horovod, MPI or the library's TensorFlow side. The check of a script and the error in a rank read this one table.
"""

DDP = "smdistributed.dataparallel.torch.parallel.distributed.DistributedDataParallel"
_TORCH_DDP = "torch.nn.parallel.DistributedDataParallel(model)"

# A name that never existed -> the intended name, in paceline's module API of smdistributed and in torch.distributed.
NEVER: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("all_reduce_params", "all_reduce_parameters"), ("average_parameters", _TORCH_DDP)),
    **dict.fromkeys(("allreduce_params", "allreduce_parameters"), ("average_parameters", _TORCH_DDP)),
    **dict.fromkeys(("sync_params", "sync_parameters", "sync_model"), ("broadcast_parameters", _TORCH_DDP)),
    **dict.fromkeys(("broadcast_params", "broadcast_model"), ("broadcast_parameters", _TORCH_DDP)),
    **dict.fromkeys(("all_reduce_grads", "all_reduce_gradients"), ("average_gradients", _TORCH_DDP)),
    **dict.fromkeys(("allreduce_gradients", "sync_gradients"), ("average_gradients", _TORCH_DDP)),
    **dict.fromkeys(("broadcast_variables", "broadcast_global_variables"), ("broadcast_parameters", _TORCH_DDP)),
    **dict.fromkeys(("allreduce", "allreduce_", "oob_allreduce"), ("all_reduce", "all_reduce")),
    "allgather": ("all_gather", "all_gather"),
    "alltoall": ("all_to_all_single", "all_to_all_single"),
    **dict.fromkeys(("init", "initialize"), ("init_process_group", "init_process_group")),
    "is_init": ("is_initialized", "is_initialized"),
    **dict.fromkeys(("size", "world_size", "get_size"), ("get_world_size", "get_world_size")),
    "rank": ("get_rank", "get_rank"),
    "local_rank": ("get_local_rank", 'int(os.environ["LOCAL_RANK"])'),
    **dict.fromkeys(("local_size", "local_world_size"), ("get_local_size", 'int(os.environ["LOCAL_WORLD_SIZE"])')),
    **dict.fromkeys(("shutdown", "finalize"), ("destroy_process_group", "destroy_process_group")),
    "Average": ("ReduceOp.AVERAGE", "ReduceOp.AVG"),
    "Sum": ("ReduceOp.SUM", "ReduceOp.SUM"),
    **dict.fromkeys(("DistributedOptimizer", "DistributedGradientTape"), (DDP, _TORCH_DDP)),
    **dict.fromkeys(("DistributedDataParallel", "DDP"), (DDP, _TORCH_DDP)),
}
