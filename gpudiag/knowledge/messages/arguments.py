"""Messages about data and arguments that an operation cannot compute with, on any device."""

from __future__ import annotations

from gpudiag.fix import check, edit, edit_note
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("data and arguments of the program", stage=Stage.PROGRAM, seen="1.x-2.21")
_ON_THE_CPU = check("CUDA_VISIBLE_DEVICES=-1 python program.py", "ends so on the CPU, too: the GPU is not at fault")

FAMILY.fault(
    "elements_differ_in_shape",
    "Cannot batch tensors with different shapes",
    "Cannot add tensor to the batch: number of elements does not match",
    meaning="the elements of the data set have different shapes, and batch() needs equal ones",
    fix=(
        edit("dataset = dataset.padded_batch(32)", "in place of batch(32): fills the shorter elements up"),
        edit_note("or make them equal before batch(): tf.image.resize for images"),
    ),
)
FAMILY.fault(
    "reshape_does_not_fit",
    "Input to reshape is a tensor with {has:d} values, but the requested shape",
    meaning="reshape gets {has} values, which do not fill the shape that the program asks for",
    in_general="reshape gets values that do not fill the shape that the program asks for",
    fix=(
        edit("dataset = dataset.batch(32, drop_remainder=True)", "if only the last batch is smaller"),
        edit_note("or give reshape the size that the data have: -1 for the dimension of the batch"),
        _ON_THE_CPU,
    ),
)
FAMILY.fault(
    "image_not_readable",
    "Unknown image file format",
    "Invalid JPEG data or crop window",
    meaning="a file of the data is no image that TensorFlow reads",
    fix=(
        edit_note("try each file with tf.io.decode_image, and remove what fails"),
        check("find . -type f -size 0", "in the folder of the data: lists empty files"),
    ),
)
FAMILY.fault(
    "records_do_not_fit",
    "Could not parse example input, value:",
    "(data type: {type:w}) is required but could not be found",
    meaning="the records have other names, types or lengths than the features that the program asks for",
    fix=(
        edit("print(tf.train.Example.FromString(next(iter(dataset)).numpy()))", "shows what a record has"),
        edit_note("then make the features that the program parses the same"),
    ),
)
FAMILY.fault(
    "placeholder_not_fed",
    "You must feed a value for placeholder tensor '{name:q}'",
    meaning="session.run gets no value for the placeholder {name}",
    in_general="session.run gets no value for a placeholder",
    fix=(edit_note("pass a value for it in feed_dict of session.run"),),
)
FAMILY.fault(
    "ctc_labels_do_not_fit",
    "Not enough time for target transition sequence",
    "Saw a non-null label (index >= num_classes - 1) following a null label",
    meaning="the labels do not fit the outputs of CTC: they are longer, or have a larger number than it has classes",
    fix=(edit_note("make the labels shorter than the outputs, and num_classes one more than the largest label"),),
)
FAMILY.fault(
    "variable_not_initialised",
    "Attempting to use uninitialized value {name:s}",
    meaning="the program reads the variable {name} before it has a value",
    in_general="the program reads a variable before it has a value",
    fix=(edit("session.run(tf.compat.v1.global_variables_initializer())", "before the first use"),),
    seen="1.x",
)
FAMILY.fault(
    "values_became_nan",
    "Nan in summary histogram for:",
    meaning="values of the model became NaN or infinite",
    fix=(
        edit("tf.debugging.enable_check_numerics()", "at the start: names the operation that gives the first NaN"),
        edit_note("lower the learning rate, and look for NaN in the data"),
    ),
)
