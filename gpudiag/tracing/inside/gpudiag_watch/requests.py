"""What a program asks for elsewhere than in the eager context: policies of Keras, options, lists of devices."""

import sys

from .given import used
from .lines import kind_of, line_of_program
from .notes import HEAD, guarded, like, missing, new_slot, note, note_once, replace, state
from .settings import watch_method

_CONTAINERS = frozenset(("InputLayer", "Model"))


def in_config(module) -> None:
    """Watch functions of tf.config that are not methods of the context."""
    watch_method(module, "enable_tensor_float_32_execution", _tensor_float_32, "whether TensorFloat-32 was asked for")


def _tensor_float_32(enabled):
    return {"what": "tensor_float_32", "target": "", "value": bool(enabled)}


def watch_lists(context_class) -> None:
    """Note the lists of devices that are empty, because the type is not one of TensorFlow's."""
    for name in ("list_physical_devices", "list_logical_devices"):
        listed = getattr(context_class, name, None)
        if listed is None:
            missing("Context.%s" % name, "lists of devices of a type that there is not")
        else:
            replace(context_class, name, _listing(name, listed))


def _listing(name, listed):
    def listing(self, device_type=None):
        found = listed(self, device_type)
        if not found and isinstance(device_type, str):
            guarded(_empty_list, name, device_type)
        return found

    return listing


def _empty_list(name, device_type) -> None:
    note("setting", what=name, target="", value=device_type, line=line_of_program(3), stage="", error="")


def in_policy(module) -> None:
    """Watch the policy of Keras, and what the layers that are made later take of it."""
    watch_method(module, "set_dtype_policy", _policy, "policies of Keras")


def _policy(policy):
    used(policy)
    if kind_of(sys._getframe(4).f_code.co_filename) == "keras":
        return None  # Keras itself sets the first one of each thread
    made = {name: state.words[slot] for name, slot in state.layers.items()} if state.words is not None else {}
    threading = sys.modules.get("threading")  # Keras keeps a policy for each thread
    apart = threading is not None and threading.current_thread() is not threading.main_thread()
    value = str(getattr(policy, "name", policy))
    return {"what": "dtype_policy", "target": "", "value": value, "layers": made, "apart": apart}


def in_policies(module) -> None:
    get = getattr(module, "get", None)
    if get is None:
        missing("keras.src.dtype_policies.get", "which policies layers have")
        return

    def watched(identifier):
        policy = get(identifier)
        used(identifier)
        caller = sys._getframe(1)
        if caller.f_code.co_name == "__init__" and caller.f_code.co_filename.endswith("layer.py"):
            guarded(_layer, policy, caller.f_locals.get("self"))
        return policy

    replace(module, "get", watched)


def _layer(policy, layer) -> None:
    if _CONTAINERS.isdisjoint(cls.__name__ for cls in type(layer).__mro__):
        name = str(policy.name)
        slot = state.layers.get(name)
        if slot is None:
            slot = state.layers[name] = new_slot("layer", name, "", "", "", "")
        if slot != HEAD and state.words is not None:
            state.words[slot] += 1


def in_optimizers(module) -> None:
    """Watch whether gradients of layers in float16 are applied that no LossScaleOptimizer has scaled."""
    cls = getattr(module, "BaseOptimizer", None)
    original = getattr(cls, "apply", None)
    if original is None:
        missing("keras.src.optimizers.base_optimizer.BaseOptimizer.apply", "whether losses in float16 are scaled")
        return

    def apply(self, grads, trainable_variables=None):
        if "mixed_float16" in state.layers:
            guarded(_applied)
        return original(self, grads, trainable_variables)

    replace(cls, "apply", like(original, apply))


def _applied() -> None:
    if not sys._getframe(3).f_code.co_filename.endswith("loss_scale_optimizer.py"):
        note_once("unscaled", line_of_program(3))
