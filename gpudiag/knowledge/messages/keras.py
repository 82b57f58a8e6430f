"""What Keras and the program's own use of TensorFlow say: another release than the program was written for."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, check, edit, install, note, run
from gpudiag.knowledge.message import Family, Text

FAMILY = Family(
    "Keras and the program's use of TensorFlow",
    stage="CONFIGURATION",
    seen="Keras 2 and 3, TensorFlow 1.15-2.21",
    url="https://keras.io/getting_started/",
)

_LEGACY = run(
    "pip install tf_keras; export TF_USE_LEGACY_KERAS=1",
    "Keras 2 for programs that were written for it (TensorFlow 2.16 and newer; before Python starts)",
    kind=Kind.INSTALL,
)

FAMILY.fault(
    "keras_of_another_tensorflow",
    Text(
        "module 'tensorflow.python.framework.ops' has no attribute '_TensorLike'",
        "https://github.com/apache/tvm/issues/6754",
    ),
    "module 'tensorflow.compat.v2' has no attribute '__internal__'",
    Text(
        "module 'tensorflow.compat.v2.__internal__{:q}' has no attribute '{name:w}'",
        "https://github.com/dusty-nv/jetson-containers/issues/153",
    ),
    "module 'tensorflow._api.v2.compat.v2' has no attribute '__internal__'",
    "module 'tensorflow._api.v2.compat.v2.__internal__{:q}' has no attribute '{name:w}'",
    "cannot import name 'dtensor' from 'tensorflow{:q}'",
    "module 'tensorflow' has no attribute 'get_default_graph'{}keras",
    "module 'tensorflow.python.distribute.input_lib' has no attribute 'DistributedDatasetInterface'",
    Text(
        "module 'tensorflow.python.keras.{:q}' has no attribute", "https://github.com/tensorflow/probability/issues/255"
    ),
    "cannot import name 'get_config' from 'tensorflow.python.eager.context'",
    "cannot import name 'tf_utils' from 'tensorflow.python.keras",
    "cannot import name 'type_spec_registry'",
    "cannot import name 'pywrap_tensorflow'",
    Text(
        "AlreadyExistsError: Another metric with the same name already exists",
        "https://github.com/optuna/optuna/pull/3078",
    ),
    "Keras requires TensorFlow {needs:v} or higher",
    "has no attribute 'register_load_context_function'",
    "'_UserObject' object has no attribute '{:w}'",
    meaning="the installed Keras was made for another release of TensorFlow",
    fix=(
        run(
            "pip uninstall -y keras tf_keras keras-nightly; pip install --force-reinstall tensorflow",
            "brings the Keras that fits it",
            kind=Kind.REMOVE,
        ),
        install(
            "keras=={release_of_both}.*",
            "tensorflow=={release_of_both}.*",
            note="2.4 to 2.15: of the same number; before: Keras 2.3.1 with 1.15 to 2.2; 2.16 and newer: Keras 3",
        ),
    ),
    stage="PACKAGE",
)
FAMILY.fault(
    "keras_3_differs",
    Text(
        "A KerasTensor cannot be used as input to a TensorFlow function",
        "keras 3.15 keras/src/backend/common/keras_tensor.py:195",
    ),
    Text(
        "A KerasTensor is symbolic: it's a placeholder for a shape an a dtype",
        "keras 3.15 keras/src/backend/common/keras_tensor.py:151",
    ),
    Text("Only input tensors may be passed as positional arguments", "keras 3.15 keras/src/layers/layer.py:909"),
    "Argument(s) not recognized: {{{name}}}",
    "decay is deprecated in the new Keras optimizer",
    Text("Keras 3 only supports V3 `.keras` files", "keras 3.15 keras/src/saving/saving_api.py:222"),
    Text("File format not supported: filepath={}", "keras 3.15 keras/src/saving/saving_api.py:221"),
    Text("The filename must end in `.weights.h5`", "keras 3.15 keras/src/saving/saving_api.py:245"),
    Text("The filepath provided must end in `.keras`", "keras 3.15 keras/src/callbacks/model_checkpoint.py:218"),
    "Unrecognized keyword arguments passed to {layer:w}: {{{name}}}",
    Text("`batch_shape` argument{}", "tensorflow 2.21 tensorflow/python/keras/layers/convolutional_recurrent.py:368"),
    "The following argument(s) are not supported with the native Keras format",
    "You are loading a weight file containing {} layers into a model with",
    "'Variable' object has no attribute 'assign_sub'{}",
    "got an unexpected keyword argument 'lr'",
    "got an unexpected keyword argument 'batch_input_shape'",
    "got an unexpected keyword argument 'input_shape'",
    "got an unexpected keyword argument 'experimental_run_tf_function'",
    "got an unexpected keyword argument 'use_multiprocessing'",
    "got an unexpected keyword argument 'workers'",
    "got an unexpected keyword argument 'custom_objects'",
    Text(
        "optimizer.compute_gradients{}",
        "tensorflow 1.15 (NVIDIA) tensorflow/contrib/mixed_precision/python/loss_scale_optimizer.py:80",
    ),
    "tf.keras.backend.tensorflow_backend.{}",
    "has no attribute 'experimental_run_v2'",
    "has no attribute 'predict_classes'",
    "has no attribute 'predict_proba'",
    "has no attribute 'fit_generator'",
    "has no attribute 'predict_generator'",
    "has no attribute 'uses_learning_phase'",
    "has no attribute '_make_predict_function'",
    "has no attribute 'run_eagerly'",
    "'Functional' object has no attribute '{name:w}'",
    "'Sequential' object has no attribute '{name:w}'",
    "cannot import name 'multi_gpu_model'",
    meaning="the program uses Keras as another release had it: Keras 3 (TensorFlow 2.16 and newer) removed or "
    "renamed what it asks for",
    fix=(
        _LEGACY,
        install("tensorflow<2.16", "keras<3", note="or the last with Keras 2, on Python up to 3.11"),
        note(
            "or change the program: https://keras.io/guides/migrating_to_keras_3/ (learning_rate in place of "
            "lr, fit in "
            "place of fit_generator, tf.distribute in place of multi_gpu_model)",
            kind=Kind.EDIT_PROGRAM,
        ),
    ),
)
FAMILY.fault(
    "keras_saved_by_another",
    Text("Unknown layer: {layer:w}", "keras 3.15 keras/src/models/functional.py:795"),
    "Unknown layer: '{layer:q}'",
    "Could not locate class '{layer:q}'",
    "Could not locate function '{layer:q}'",
    "Unrecognized keyword arguments: ['batch_shape'{}]",
    "bad marshal data (unknown type code)",
    "Error when deserializing class '{layer:q}' using config",
    "Unable to open file (file signature not found)",
    "Unable to synchronously open file (file signature not found)",
    "Unrecognized keyword arguments passed to {layer:w}: {{'batch_shape'{}",
    "from_config() missing 1 required positional argument",
    Text("('Keyword argument not understood:', '{name:w}')", "https://github.com/CyberZHG/keras-bert/issues/98"),
    Text("('Unrecognized keyword arguments:', dict_keys(", "https://github.com/keras-team/keras/issues/8956"),
    "Unrecognized keyword arguments: dict_keys(",
    Text("Unable to revive model from config", "keras 3.15 keras/src/models/model.py:1042"),
    Text(
        "Layer {layer:s} expected {:d} variables, but received {:d} variables during loading",
        "keras 3.15 keras/src/layers/convolutional/base_conv.py:419",
    ),
    Text(
        "Layer count mismatch when loading weights from file",
        "keras 3.15 keras/src/legacy/saving/legacy_h5_format.py:376",
    ),
    "Could not deserialize class '{layer:q}' because its parent module",
    meaning="the model's file was written by another release of Keras than the one that reads it, or is not whole",
    fix=(
        run(
            "pip install 'tensorflow==X.Y'",
            "the release that saved it; then save it again with model.export or as .keras",
            kind=Kind.INSTALL,
        ),
        edit(
            "tf.keras.models.load_model(path, custom_objects=...)",
            "names your own layers; in Keras 3 a SavedModel by keras.layers.TFSMLayer",
        ),
    ),
    possible=True,
)
FAMILY.fault(
    "h5py_3",
    Text("'str' object has no attribute 'decode'", "https://github.com/mdhmz1/Auto-Annotate/issues/13"),
    meaning="h5py 3 is installed, and this Keras (TensorFlow up to 2.3) is written for h5py 2, which read texts as "
    "bytes",
    fix=(
        install("h5py<3", note="in a notebook: then restart the kernel"),
        install("--upgrade", "tensorflow", note="or 2.4 and newer, which read both", role=Role.ALTERNATIVE),
    ),
    possible=True,
)
FAMILY.fault(
    "graph_mode_and_eager",
    Text(
        "The Session graph is empty. Add operations to the graph before calling run()",
        "tensorflow 2.21 tensorflow/python/client/session.py:1089",
    ),
    Text("is not compatible with eager execution", "tensorflow 2.21 tensorflow/python/ops/array_ops.py:1171"),
    Text(
        "Tensor.graph is undefined when eager execution is enabled",
        "tensorflow 2.21 tensorflow/python/framework/ops.py:607",
    ),
    Text(
        "Tensor.graph is meaningless when eager execution is enabled",
        "tensorflow 1.15 (NVIDIA) tensorflow/python/framework/ops.py:1085",
    ),
    Text(
        "should be a function when eager execution is enabled",
        "tensorflow 2.21 tensorflow/python/training/optimizer.py:606",
    ),
    Text(
        "`loss` passed to Optimizer.compute_gradients should be a function",
        "tensorflow 2.21 tensorflow/python/training/optimizer.py:606",
    ),
    "get_session is not available when using TensorFlow 2",
    "`get_session` is not available when using TensorFlow 2",
    Text(
        "tf.gradients is not supported when eager execution is enabled",
        "tensorflow 2.21 tensorflow/python/ops/gradients_util.py:521",
    ),
    Text(
        "Attempting to capture an EagerTensor without building a function",
        "tensorflow 2.21 tensorflow/python/framework/ops.py:648",
    ),
    "When eager execution is enabled, use a {}",
    meaning="the program was written for TensorFlow 1, with sessions, and runs in TensorFlow 2, which executes eagerly",
    fix=(
        edit(
            "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()",
            "in place of: import tensorflow as tf; before anything else of it",
        ),
        edit("tf.compat.v1.disable_eager_execution()", "after the import", role=Role.ALTERNATIVE),
    ),
    url="https://www.tensorflow.org/guide/migrate",
)
FAMILY.fault(
    "model_of_newer_tensorflow",
    Text("Op type not registered '{op:q}'", "tensorflow 2.21 tensorflow/core/framework/op.cc:67"),
    Text(
        "NodeDef mentions attr '{attribute:q}' not in Op",
        "tensorflow 1.15 (NVIDIA) tensorflow/core/framework/node_def_builder_test.cc:484",
    ),
    Text(
        "Check whether your GraphDef-interpreting binary is up to date with your GraphDef-generating binary",
        "tensorflow 1.15 (NVIDIA) tensorflow/core/framework/node_def_util.cc:635",
    ),
    Text(
        "Converting GraphDef to Graph has failed",
        "tensorflow 2.21 tensorflow/core/common_runtime/graph_constructor.cc:510",
    ),
    Text(
        "Value for attr '{attribute:q}' of {:s} is not in the list of allowed values",
        "tensorflow 2.21 tensorflow/core/framework/op_def_util.cc:60",
    ),
    meaning="the model uses operations or attributes that this TensorFlow does not have: it was saved by a newer "
    "one, or needs a package that brings them",
    fix=(
        install("--upgrade", "tensorflow", note="at least the release that saved the model"),
        edit(
            "import tensorflow_text",
            "of the same release as TensorFlow: brings Sentencepiece and others; likewise "
            "tensorflow_io, tensorflow_addons, tensorflow_decision_forests",
        ),
    ),
    possible=True,
)
FAMILY.fault(
    "labels_out_of_range",
    Text(
        "Received a label value of {label:s} which is outside the valid range of [{first:d}, {end:d})",
        "tensorflow 2.21 tensorflow/core/kernels/sparse_xent_op.cc:46",
    ),
    Text(
        "Received a label value of {label:s} which is outside the valid range",
        "tensorflow 2.21 tensorflow/core/kernels/sparse_xent_op.cc:46",
    ),
    meaning="the data has the label {label}, and the model has fewer outputs: the GPU computes NaN there, without an "
    "error",
    fix=(
        note("as many units in the last layer as there are classes; labels count from 0", kind=Kind.EDIT_PROGRAM),
        edit("print(set(labels))", "what the data has"),
    ),
)
FAMILY.fault(
    "shapes_do_not_fit",
    Text(
        "logits and labels must have the same first dimension",
        "tensorflow 2.21 tensorflow/compiler/tf2xla/kernels/softmax_op.cc:138",
    ),
    Text("logits and labels must be broadcastable", "tensorflow 2.21 tensorflow/core/kernels/xent_op.cc:54"),
    Text("`logits` and `labels` must have the same shape", "tensorflow 2.21 tensorflow/python/ops/nn_impl.py:126"),
    Text("Incompatible shapes: [{}] vs. [{}]", "tensorflow 2.21 tensorflow/compiler/tf2xla/kernels/bcast_ops.cc:61"),
    Text("required broadcastable shapes", "tensorflow 2.15.1 libtensorflow_cc.so.2"),
    Text(
        "Matrix size-incompatible: In[0]: {} In[1]: {}",
        "tensorflow 2.21 tensorflow/core/kernels/mkl/mkl_batch_matmul_op.cc:135",
    ),
    Text(
        "Input 0 of layer {} is incompatible with the layer",
        "tensorflow 2.21 tensorflow/python/keras/engine/base_layer.py:1268",
    ),
    "Exception encountered when calling {}Invalid input shape for input",
    "Cast string to float is not supported",
    "Cast string to int32 is not supported",
    "Failed to convert a NumPy array to a Tensor (Unsupported object type",
    Text("Shapes {} and {} are incompatible", "tensorflow 2.21 tensorflow/python/framework/tensor_shape.py:1385"),
    "could not broadcast input array from shape",
    Text("setting an array element with a sequence", "numpy 2.6.dev numpy/_core/src/multiarray/array_coercion.c:1338"),
    "Unexpected result of `train_function` (Empty Logs)",
    Text(
        "Cannot batch tensors with different shapes in component",
        "tensorflow 2.21 tensorflow/core/data/dataset_utils.cc:835",
    ),
    Text(
        "Negative dimension size caused by subtracting",
        "tensorflow 2.21 tensorflow/core/framework/shape_inference.cc:1097",
    ),
    meaning="the program's own data and model do not fit each other; it is nothing of the GPU",
    fix=(
        check("CUDA_VISIBLE_DEVICES=-1 python program.py", "says the same, with the operation and its shapes"),
        edit("print(model.summary(), x.shape, x.dtype, y.shape, y.dtype)", "what goes in against what the model takes"),
    ),
    possible=True,
    follows=True,
)
FAMILY.fault(
    "embedding_out_of_range",
    Text(
        "indices[{at}] = {index:s} is not in [{first:d}, {end:d})",
        "tensorflow 2.21 tensorflow/core/kernels/gather_op_test.cc:113",
    ),
    meaning="an index of the data ({index}) is outside of a table of {end} entries, as of an Embedding layer",
    fix=(
        note("input_dim of the Embedding: the largest index + 1, that is len(word_index) + 1", kind=Kind.EDIT_PROGRAM),
        edit("print(x.min(), x.max())", "what the data has; on the GPU such an index gives zeros, without an error"),
    ),
)
