"""Messages of Keras and TensorFlow about a program that was written for another release."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, check, edit, edit_note, install, run
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "Keras and the program's use of TensorFlow",
    stage=Stage.CONFIGURATION,
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
    "module 'tensorflow.python.framework.ops' has no attribute '_TensorLike'",
    "module 'tensorflow.compat.v2.__internal__{:q}' has no attribute '{name:w}'",
    "module 'tensorflow.python.keras.{:q}' has no attribute",
    "AlreadyExistsError: Another metric with the same name already exists",
    "module 'tensorflow.compat.v2' has no attribute '__internal__'",
    "module 'tensorflow._api.v2.compat.v2.__internal__{:q}' has no attribute '{name:w}'",
    "cannot import name 'dtensor' from 'tensorflow{:q}'",
    "cannot import name 'tf2'",
    "module 'tensorflow.python.distribute.input_lib' has no attribute 'DistributedDatasetInterface'",
    "cannot import name 'get_config' from 'tensorflow.python.eager.context'",
    "cannot import name 'tf_utils'",
    "cannot import name 'type_spec_registry'",
    "cannot import name 'pywrap_tensorflow'",
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
            note="TensorFlow 2.4 to 2.15 needs the Keras of the same number; 1.15 to 2.2 needs Keras "
            "2.3.1; 2.16 and newer needs Keras 3",
        ),
    ),
    stage=Stage.PACKAGE,
)
FAMILY.fault(
    "keras_3_differs",
    "A KerasTensor cannot be used as input to a TensorFlow function",
    "A KerasTensor is symbolic: it's a placeholder for a shape an a dtype",
    "Only input tensors may be passed as positional arguments",
    "Argument(s) not recognized: {{{name}}}",
    "Keras 3 only supports V3 `.keras` files",
    "File format not supported: filepath={}",
    "The filename must end in `.weights.h5`",
    "The filepath provided must end in `.keras`",
    "`batch_shape` argument{}",
    "The following argument(s) are not supported with the native Keras format",
    "optimizer.compute_gradients{}",
    "decay is deprecated in the new Keras optimizer",
    "Unrecognized keyword arguments passed to {layer:w}: {{{name}}}",
    "got an unexpected keyword argument 'lr'",
    "got an unexpected keyword argument 'input_shape'",
    "got an unexpected keyword argument 'experimental_run_tf_function'",
    "got an unexpected keyword argument 'use_multiprocessing'",
    "got an unexpected keyword argument 'workers'",
    "got an unexpected keyword argument 'custom_objects'",
    "has no attribute 'tensorflow_backend'",
    "has no attribute 'experimental_run_v2'",
    "has no attribute 'predict_classes'",
    "has no attribute 'predict_proba'",
    "has no attribute 'fit_generator'",
    "has no attribute 'predict_generator'",
    "has no attribute 'uses_learning_phase'",
    "has no attribute '_make_predict_function'",
    "has no attribute 'run_eagerly'",
    "The layer {:s} has never been called and thus has no defined",
    "'Functional' object has no attribute '{name:w}'",
    "'Sequential' object has no attribute '{name:w}'",
    "cannot import name 'multi_gpu_model'",
    meaning="the program uses Keras as another release had it: Keras 3 (TensorFlow 2.16 and newer) removed or "
    "renamed what it asks for",
    fix=(
        _LEGACY,
        install("tensorflow<2.16", "keras<3", note="or install the last TensorFlow with Keras 2, on Python up to 3.11"),
        edit_note(
            "or change the program: https://keras.io/guides/migrating_to_keras_3/ (learning_rate in place of "
            "lr, fit in "
            "place of fit_generator, tf.distribute in place of multi_gpu_model)"
        ),
    ),
)
FAMILY.fault(
    "keras_2_reads_keras_3",
    "Unrecognized keyword arguments: ['batch_shape'{}]",
    meaning="the model file was written by Keras 3, and Keras 2, of TensorFlow before 2.16, reads it",
    fix=(
        install("--upgrade", "tensorflow>=2.16", note="has Keras 3; without TF_USE_LEGACY_KERAS"),
        edit_note("or save the model again with Keras 2, or model.export it as a SavedModel"),
    ),
    url="https://keras.io/getting_started/",
)
FAMILY.fault(
    "keras_saved_by_another",
    "Unknown layer: {layer:w}",
    "Unknown layer: '{layer:q}'",
    "Could not locate class '{layer:q}'",
    "bad marshal data (unknown type code)",
    "Error when deserializing class '{layer:q}' using config",
    "('Keyword argument not understood:', '{name:w}')",
    "('Unrecognized keyword arguments:', dict_keys(",
    "Unrecognized keyword arguments: dict_keys(",
    "Unable to revive model from config",
    "Layer {layer:s} expected {:d} variables, but received {:d} variables during loading",
    "Layer count mismatch when loading weights from file",
    "Could not deserialize class '{layer:q}' because its parent module",
    "Could not locate function '{layer:q}'",
    "Unable to open file (file signature not found)",
    "Unable to synchronously open file (file signature not found)",
    "Unrecognized keyword arguments passed to {layer:w}: {{'batch_shape'{}",
    "from_config() missing 1 required positional argument",
    meaning="the model file was written by another release of Keras than the one that reads it, or is incomplete",
    fix=(
        install(
            "tensorflow==X.Y",
            note="install the release that saved the model; then save it again with model.export or as .keras",
        ),
        edit(
            "tf.keras.models.load_model(path, custom_objects=...)",
            "name your own layers in custom_objects; in Keras 3, load a SavedModel with keras.layers.TFSMLayer",
        ),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "h5py_3",
    "'str' object has no attribute 'decode'",
    meaning="h5py 3 is installed, but this Keras (TensorFlow up to 2.3) needs h5py 2, which reads texts as bytes",
    fix=(
        install("h5py<3", note="then restart the kernel, in a notebook"),
        install(
            "--upgrade",
            "tensorflow",
            note="or install TensorFlow 2.4 or newer, which reads both",
            role=Role.ALTERNATIVE,
        ),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "graph_mode_and_eager",
    "The Session graph is empty. Add operations to the graph before calling run()",
    "is not compatible with eager execution",
    "Tensor.graph is undefined when eager execution is enabled",
    "Tensor.graph is meaningless when eager execution is enabled",
    "should be a function when eager execution is enabled",
    "`loss` passed to Optimizer.compute_gradients should be a function",
    "`get_session` is not available when using TensorFlow 2",
    "tf.gradients is not supported when eager execution is enabled",
    "Attempting to capture an EagerTensor without building a function",
    "When eager execution is enabled, use a {}",
    "get_session is not available when using TensorFlow 2",
    meaning="the program was written for TensorFlow 1, with sessions, and runs in TensorFlow 2, which executes eagerly",
    fix=(
        edit(
            "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()",
            "replaces: import tensorflow as tf; must come before anything else of TensorFlow",
        ),
        edit("tf.compat.v1.disable_eager_execution()", "put it after the import", role=Role.ALTERNATIVE),
    ),
    url="https://www.tensorflow.org/guide/migrate",
)
FAMILY.fault(
    "model_of_newer_tensorflow",
    "Op type not registered '{op:q}'",
    "NodeDef mentions attr '{attribute:q}' not in Op",
    "Check whether your GraphDef-interpreting binary is up to date with your GraphDef-generating binary",
    "Converting GraphDef to Graph has failed",
    "Value for attr '{attribute:q}' of {:s} is not in the list of allowed values",
    meaning="the model uses operations or attributes that this TensorFlow does not have: it was saved by a newer "
    "one, or needs a package that brings them",
    fix=(
        install("--upgrade", "tensorflow", note="needs at least the release that saved the model"),
        edit(
            "import tensorflow_text",
            "registers Sentencepiece and others; must be of TensorFlow's release; likewise "
            "tensorflow_io, tensorflow_addons, tensorflow_decision_forests",
        ),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "labels_out_of_range",
    "Received a label value of {label:s} which is outside the valid range of [{first:d}, {end:d})",
    "Received a label value of {label:s} which is outside the valid range",
    meaning="label {label} of the data is out of range: the model has fewer outputs, and the GPU then"
    " computes NaN without an error",
    in_general="a label of the data is out of range: the model has fewer outputs, and the GPU then "
    "computes NaN without an error",
    fix=(
        edit_note("give the last layer as many units as there are classes; labels count from 0"),
        edit("print(set(labels))", "shows the labels in the data"),
    ),
)
FAMILY.fault(
    "labels_do_not_fit",
    "logits and labels must have the same first dimension",
    "logits and labels must be broadcastable",
    "`logits` and `labels` must have the same shape",
    "logits and labels must be same size",
    meaning="the labels do not have the form that the loss and the last layer of the model expect; the GPU is not at "
    "fault",
    fix=(
        edit("loss='sparse_categorical_crossentropy'", "if a label is the number of its class: shape (batch,)"),
        edit("loss='categorical_crossentropy'", "if labels are one-hot: shape (batch, classes)"),
        edit_note("give the last layer as many units as there are classes, and labels as many positions as outputs"),
        edit("print(model.output_shape, y.shape)", "shows both shapes"),
    ),
    symptom=True,
)
FAMILY.fault(
    "text_in_place_of_numbers",
    "Cast string to float is not supported",
    "Cast string to int32 is not supported",
    meaning="the data has text where the model or the loss expects numbers; the GPU is not at fault",
    fix=(
        edit("y = pd.factorize(y)[0]", "labels: the number of the class in place of its name"),
        edit("tf.strings.to_number(x)", "numbers that were read as text; words: tf.keras.layers.TextVectorization"),
        edit("print(dataset.element_spec)", "shows which part of the data has dtype string"),
    ),
    symptom=True,
)
FAMILY.fault(
    "shapes_do_not_fit",
    "Incompatible shapes: [{}] vs. [{}]",
    "required broadcastable shapes",
    "Matrix size-incompatible: In[0]: {} In[1]: {}",
    "Input 0 of layer {} is incompatible with the layer",
    "Failed to convert a NumPy array to a Tensor (Unsupported object type",
    "Shapes {} and {} are incompatible",
    "could not broadcast input array from shape",
    "setting an array element with a sequence",
    "Cannot batch tensors with different shapes in component",
    "Negative dimension size caused by subtracting",
    "Exception encountered when calling {}Invalid input shape for input",
    "Unexpected result of `train_function` (Empty Logs)",
    meaning="the program's data and model do not fit each other; the GPU is not at fault",
    fix=(
        check(
            "CUDA_VISIBLE_DEVICES=-1 python program.py", "shows the error on the CPU, with the operation and its shapes"
        ),
        edit(
            "print(model.summary(), x.shape, x.dtype, y.shape, y.dtype)",
            "compare the data with the input that the model expects",
        ),
    ),
    symptom=True,
)
FAMILY.fault(
    "embedding_out_of_range",
    "indices[{at}] = {index:s} is not in [{first:d}, {end:d})",
    meaning="an index of the data ({index}) is outside of a table of {end} entries, as of an Embedding layer",
    in_general="an index of the data is outside of its table, as of an Embedding layer",
    fix=(
        edit_note("input_dim of the Embedding: the largest index + 1, that is len(word_index) + 1"),
        edit(
            "print(x.min(), x.max())",
            "shows the indices in the data; on the GPU such an index gives zeros, without an error",
        ),
    ),
)
