"""Kinds of models, optimizers, schedulers, data loaders and generators of random numbers."""

import collections
import importlib
import random
import sys
import weakref
from typing import Any

from . import random_state
from .object_graph import MISSING, PLAIN_TYPES, CannotKeep, CannotPutBack, Capture, ObjectKind, Restore, Value

# These belong to the process, not to the training, or are parts that have their own place in the payload.
_NOT_KEPT_OF_MODULES = frozenset({
    "_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set", "_is_full_backward_hook",
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_compiled_call_impl", "call_super_init", "dump_patches",
})  # fmt: skip
# Wrappers whose other attributes are about the process group or about compiled code.
_ONLY_THEIR_MODULES = ("torch.nn.parallel.", "torch.distributed.", "torch._dynamo.")
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
# What torch's `fully_shard` and `replicate` note in a module; the names are other ones in each process.
_OF_COMPOSABLE = ("__composable_api_state_key", "_is_fsdp_managed_module", "_fsdp_use_orig_params")
_NOT_KEPT_OF_OPTIMIZERS = frozenset(
    {"state", "param_groups", "defaults", "step", "zero_grad", "_zero_grad_profile_name"}
)
# Of a scaler: what is kept between two parts of one step. Of a sampler: what it is about.
_NOT_KEPT_OF_OTHERS = {
    "torch.amp.grad_scaler": frozenset({"_per_optimizer_states"}),
    "torch.cuda.amp.grad_scaler": frozenset({"_per_optimizer_states"}),
    "torch.utils.data.sampler": frozenset({"data_source"}),
    "torch.utils.data.distributed": frozenset({"dataset"}),
}

# What a metric of a library collects its values in.
_CONTAINERS = (list, dict, set, collections.deque)


class ModuleKind(ObjectKind):
    """A torch.nn.Module.

    Payload: class, training, parameters, buffers, modules below it, other attributes, names of buffers that are in no state dict, number of
    hooks around its forward pass.
    """

    code = "module"

    def keep(self, capture: Capture, thing: Any) -> Any:
        own_type = _unwrapped(type(thing))
        if own_type.__module__.startswith(_FSDP1):
            raise CannotKeep(
                f"`{capture.place}` is spread over ranks by FullyShardedDataParallel; by fully_shard it could be kept"
            )
        if own_type is not type(thing):
            # It has whole parameters after a forward pass without a backward pass. The next forward pass gathers them again.
            thing.reshard()
        with capture.context.of_training():
            parameters = {name: capture.value(one) for name, one in thing._parameters.items()}
            buffers = {name: capture.value(one) for name, one in thing._buffers.items()}
        children = {name: capture.value(one) for name, one in thing._modules.items()}
        return [
            capture.context.names.name_of(own_type),
            thing.training,
            parameters,
            buffers,
            children,
            _attributes(capture, thing),
            sorted(thing._non_persistent_buffers_set),
            capture.context.hooks.count(thing, capture.place),
        ]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        name, training, parameters, buffers, children, attributes, _, hooks = payload
        own_type = restore.context.names.thing(name, restore.place)
        if _unwrapped(type(live)) is not own_type:
            if own_type.__module__.startswith(_ONLY_THEIR_MODULES):
                raise CannotPutBack(f"the script has not made {own_type.__name__} `{restore.place}` again")
            live = own_type.__new__(own_type)
            sys.modules["torch"].nn.Module.__init__(live)
        restore.bind(number, live)
        # `training` is an attribute of the instance; a model in eval mode stays so.
        live.training = training
        _put_members(restore, live._parameters, parameters)
        _put_members(restore, live._buffers, buffers)
        _put_members(restore, live._modules, children)
        _put_attributes(restore, live, attributes)
        # Last: a model that is not sharded any more has fewer hooks as well.
        if _hooks(live) != hooks:
            raise CannotPutBack(f"`{restore.place}` ({own_type.__name__}) had {hooks} hooks, and has {_hooks(live)}")
        return live


class Hooks:
    """How many hooks each module had when it was first seen. A hook is a function, which a new process does not have."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[weakref.ref[Any], int]] = {}

    def count(self, module: Any, place: str) -> int:
        """The number of hooks of a module.

        Raises:  CannotKeep: it has changed
        """
        now = _hooks(module)
        known = self._first.get(id(module))
        if known is None or known[0]() is not module:
            self._first[id(module)] = (weakref.ref(module), now)
        elif known[1] != now:
            raise CannotKeep(f"`{place}` ({type(module).__qualname__}) gets or loses a hook while it trains")
        return now


class OptimizerKind(ObjectKind):
    """A torch.optim.Optimizer. Payload: class, defaults, groups, state, other attributes."""

    code = "optimizer"

    def keep(self, capture: Capture, thing: Any) -> Any:
        if type(thing).__module__.startswith("torch.distributed."):
            raise CannotKeep(f"`{capture.place}` ({type(thing).__qualname__}) has its state on several ranks")
        with capture.context.of_training():
            groups = [capture.variables(group) for group in thing.param_groups]
            state = capture.value(thing.state)
        others = {
            name: value
            for name, value in vars(thing).items()
            if name not in _NOT_KEPT_OF_OPTIMIZERS and not name.startswith("_optimizer_")
        }
        return [
            capture.context.names.name_of(type(thing)),
            capture.variables(getattr(thing, "defaults", {})),
            groups,
            state,
            capture.context.attributes(capture, type(thing), others),
        ]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        name, defaults, groups, state, attributes = payload
        if not hasattr(live, "param_groups"):
            live = self._made(restore, name, defaults, groups)
        restore.bind(number, live)
        del live.param_groups[len(groups) :]
        for i, group in enumerate(groups):
            if i == len(live.param_groups):
                live.param_groups.append({})
            live.param_groups[i].update(restore.variables(group, live.param_groups[i]))
        restore.thing(state, live.state)
        _put_attributes(restore, live, attributes)
        return live

    @staticmethod
    def _made(restore: Restore, name: str, defaults: Any, groups: Any) -> Any:
        """An optimizer that the training loop had made."""
        own_type = restore.context.names.thing(name, restore.place)
        made = own_type.__new__(own_type)
        parameters = [{"params": restore.thing(group["params"])} for group in groups]
        if not all(group["params"] for group in parameters):
            raise CannotPutBack(f"the script has not made the optimizer `{restore.place}` again")
        sys.modules["torch"].optim.Optimizer.__init__(made, parameters, restore.variables(defaults, {}))
        return made


class AttributesKind(ObjectKind):
    """An object of torch that keeps its state in its attributes: a scheduler, a scaler, a sampler. Payload: class and attributes."""

    code = "attributes"

    def keep(self, capture: Capture, thing: Any) -> Any:
        not_kept = _NOT_KEPT_OF_OTHERS.get(type(thing).__module__, ())
        others = {name: value for name, value in vars(thing).items() if name not in not_kept}
        return [
            capture.context.names.name_of(type(thing)),
            {name: capture.value(value) for name, value in others.items()},
        ]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        name, attributes = payload
        own_type = restore.context.names.thing(name, restore.place)
        if type(live) is not own_type:
            raise CannotPutBack(f"the script has not made {own_type.__name__} `{restore.place}` again")
        restore.bind(number, live)
        _put_attributes(restore, live, attributes)
        return live


class LoaderKind(ObjectKind):
    """A DataLoader: what decides on its order. Payload: generator, sampler, batch sampler, and its dataset if no worker has it."""

    code = "loader"

    def keep(self, capture: Capture, thing: Any) -> Any:
        dataset = capture.value(thing.dataset) if thing.num_workers == 0 else ()
        return [
            capture.value(thing.generator),
            capture.value(thing.sampler),
            capture.value(thing.batch_sampler),
            dataset,
        ]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        if not hasattr(live, "batch_sampler"):
            raise CannotPutBack(f"the script has not made the data loader `{restore.place}` again")
        restore.bind(number, live)
        names = ("generator", "sampler", "batch_sampler", "dataset")
        for name, value in zip(names, payload, strict=True):
            restore.thing(value, getattr(live, name))
        return live


class LoaderIteratorKind(ObjectKind):
    """An iterator of a DataLoader. Payload: its number among the positions that the session keeps."""

    code = "loader iterator"

    def keep(self, capture: Capture, thing: Any) -> Any:
        return capture.context.loaders.number_of(thing, capture.place)

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        if live is MISSING:
            raise CannotPutBack(f"the script has not made the data loader's iterator `{restore.place}` again")
        restore.context.loaders.wants(live, payload)
        return live


class TorchGeneratorKind(ObjectKind):
    """A torch.Generator. Payload: device and state."""

    code = "torch generator"

    def keep(self, capture: Capture, thing: Any) -> Any:
        return [str(thing.device), random_state.of_tensor(thing.get_state())]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        device, state = payload
        if live is MISSING:
            live = sys.modules["torch"].Generator(device)
        live.set_state(random_state.to_tensor(state))
        return live


class RandomKind(ObjectKind):
    """A random.Random. Payload: state."""

    code = "random"

    def keep(self, capture: Capture, thing: Any) -> Any:
        return thing.getstate()

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        live = random.Random() if live is MISSING else live
        live.setstate(payload)
        return live


class NumpyRandomKind(ObjectKind):
    """A numpy RandomState or Generator. Payload: name of the class; state."""

    code = "numpy random"

    def keep(self, capture: Capture, thing: Any) -> Any:
        if hasattr(thing, "bit_generator"):
            return ["Generator", capture.value(thing.bit_generator.state)]
        return ["RandomState", random_state.of_numpy(thing)]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        numpy: Any = importlib.import_module("numpy")
        name, state = payload
        live = (
            (numpy.random.RandomState() if name == "RandomState" else numpy.random.default_rng())
            if live is MISSING
            else live
        )
        if name == "RandomState":
            random_state.put_numpy(live, state)
        else:
            live.bit_generator.state = restore.thing(state)
        return live


def _hooks(module: Any) -> int:
    # A compiled or scripted module may keep them elsewhere.
    return len(getattr(module, "_forward_hooks", ())) + len(getattr(module, "_forward_pre_hooks", ()))


def _attributes(capture: Capture, module: Any) -> dict[str, Value]:
    own_type = _unwrapped(type(module))
    others = {
        name: value
        for name, value in vars(module).items()
        if name not in _NOT_KEPT_OF_MODULES and not name.startswith(_OF_COMPOSABLE)
    }
    if own_type.__module__.startswith(_ONLY_THEIR_MODULES):
        return {}
    return dict(capture.context.attributes(capture, own_type, others))


def _unwrapped(own_type: type) -> type:
    """The class of a module before `fully_shard` has put one of its own in front of it, which has no name in any module."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    sharded = getattr(fsdp, "FSDPModule", None)
    if sharded is None or not issubclass(own_type, sharded) or own_type is sharded:
        return own_type
    return next(base for base in own_type.__mro__[1:] if not issubclass(base, sharded))


def _put_members(restore: Restore, live: dict[str, Any], kept: dict[str, Value]) -> None:
    for name in [name for name in live if name not in kept]:
        del live[name]
    for name, value in kept.items():
        live[name] = restore.thing(value, live.get(name, MISSING))


def _put_attributes(restore: Restore, live: Any, kept: dict[str, Value]) -> None:
    for name, value in kept.items():
        vars(live)[name] = restore.thing(value, vars(live).get(name, MISSING))


def plain_attributes(capture: Capture, attributes: dict[str, Any]) -> dict[str, Value]:
    """Of an object of a library: the attributes that are values or hold only such. The others are as its constructor makes them."""
    return {
        name: capture.value(value)
        for name, value in attributes.items()
        if _is_value(value) or (type(value) in _CONTAINERS and all(_is_value(one) for one in _items(value)))
    }


def _is_value(value: Any) -> bool:
    torch = sys.modules["torch"]
    return type(value) in PLAIN_TYPES or (isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter))


def _items(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container
