"""Runs a hook after one of TensorFlow's modules was loaded."""

import sys

from .context import in_context
from .errors import in_errors
from .functions import in_functions, in_keras
from .given import CLASSES, RESULTS, watch_module, watch_records
from .notes import guarded, missing, note
from .processes import in_multiprocessing, in_subprocess
from .requests import in_config, in_optimizers, in_policies, in_policy
from .scopes import in_distribute
from .sessions import in_session
from .settings import in_debug_mode, in_device_lib, in_eager_run, in_server, in_tensorflow, in_trainer
from .tensors import in_constants, in_iterators, in_prefetching, in_tensors


def _in_other(module) -> None:
    note("other", name=module.__name__)


HOOKS = {
    "jax": _in_other,
    "torch": _in_other,
    "multiprocessing.util": in_multiprocessing,
    "subprocess": in_subprocess,
    "tensorflow": in_tensorflow,
    "tensorflow.python.eager.context": in_context,
    "tensorflow.python.framework.errors_impl": in_errors,
    "tensorflow.python.client.session": in_session,
    "tensorflow.python.client.device_lib": in_device_lib,
    "tensorflow.python.framework.ops": in_tensors,
    "tensorflow.python.framework.constant_op": in_constants,
    "tensorflow.python.data.ops.iterator_ops": in_iterators,
    "tensorflow.python.eager.polymorphic_function.eager_function_run": in_eager_run,
    "tensorflow.python.framework.config": in_config,
    "tensorflow.python.training.server_lib": in_server,
    "tensorflow._api.v2.compat.v1": watch_records,
    "tensorflow.compat.v1": watch_records,
    "tensorflow.python.data.experimental.ops.prefetching_ops": in_prefetching,
    "keras.src.backend.config": in_keras,
    "tensorflow.python.data.ops.debug_mode": in_debug_mode,
    "keras.src.optimizers.base_optimizer": in_optimizers,
    "keras.src.dtype_policies": in_policies,
    "keras.src.dtype_policies.dtype_policy": in_policy,
    "keras.src.trainers.trainer": in_trainer,
    "tensorflow.python.distribute.distribute_lib": in_distribute,
    "tensorflow.python.eager.polymorphic_function.atomic_function": in_functions,
}


def _also_given(hook):
    def both(module):
        if hook is not None:
            guarded(hook, module)
        watch_module(module)

    return both


HOOKS.update({name: _also_given(HOOKS.get(name)) for name in (*CLASSES, *RESULTS)})

_asked: set = set()
"""Modules that other finders are being asked for: one of them may ask all finders in turn, so this one too."""


class Finder:
    """Runs a hook after one of TensorFlow's modules was loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        hook = HOOKS.get(name)
        if hook is None or name in _asked:
            return None
        _asked.add(name)
        try:
            for finder in sys.meta_path[sys.meta_path.index(Finder) + 1 :]:
                spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
                if spec is not None:
                    break
            else:
                return None
        finally:
            _asked.discard(name)
        load = getattr(spec.loader, "exec_module", None)
        if load is not None:

            def exec_module(module):
                load(module)
                guarded(hook, sys.modules.get(name, module))

            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                missing("the loader of %s" % name, "what this module does")
        return spec
