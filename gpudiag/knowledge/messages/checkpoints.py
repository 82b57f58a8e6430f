"""What TensorFlow says of files of models: checkpoints, SavedModels, HDF5 and records that cannot be read."""

from __future__ import annotations

from gpudiag.fix import Kind, check, edit, note
from gpudiag.knowledge.message import Family, Text

FAMILY = Family(
    "files of models",
    stage="PROGRAM",
    seen="0.12-2.21",
    url="https://www.tensorflow.org/guide/checkpoint",
)

_LFS = note(
    "a file of a few lines is a pointer of git-lfs, or the page of a failed download: git lfs pull, or load it again"
)

FAMILY.fault(
    "checkpoint_by_its_part",
    Text(
        "Could not open {prefix:s}.data-{:d}-of-{:d}: Data loss: not an sstable",
        "https://github.com/tflearn/tflearn/issues/517",
    ),
    Text(
        "Unable to open table file {prefix:s}.data-{:d}-of-{:d}: {}not an sstable",
        "https://github.com/tflearn/tflearn/issues/517",
    ),
    "Unable to open table file {prefix:s}.index: {}",
    "Unable to open table file {prefix:s}.meta: {}",
    "Failed to find any matching files for {prefix:s}.index",
    "Failed to find any matching files for {prefix:s}.meta",
    "Failed to find any matching files for {prefix:s}.data",
    meaning="the checkpoint is given by one of its files, and not by what the names of its files have in common",
    fix=(
        note("give {prefix}, without .data-00000-of-00001, .index or .meta: saver.restore(session, '{prefix}')"),
        edit("tf.train.latest_checkpoint('FOLDER')", "finds it"),
    ),
)
FAMILY.fault(
    "checkpoint_not_there",
    Text(
        "Unsuccessful TensorSliceReader constructor: Failed to get matching files on {prefix:s}: {}",
        "https://github.com/connorcoley/rexgen_direct/issues/19",
    ),
    Text(
        "Failed to find any matching files for {prefix:s}",
        "tensorflow 1.8 tensorflow/python/training/saver_test.py:3096",
    ),
    "The passed save_path is not a valid checkpoint: {prefix:s}",
    Text(
        "SavedModel file does not exist at: {prefix:s}",
        "tensorflow 2.21 tensorflow/python/saved_model/loader_impl.py:120",
    ),
    "Could not find trained model in model_dir: {prefix:s}",
    "Could not find SavedModel {}or SavedModel loader {}at path{:s} {prefix:s}",
    "No file or directory found at {prefix:s}",
    meaning="there is no model or checkpoint at the path that the program gives: {prefix}",
    fix=(
        check(
            "ls -l $(dirname {prefix})",
            "a checkpoint is NAME.index and NAME.data-..., a SavedModel a folder with "
            "saved_model.pb; "
            "was it downloaded and unpacked",
        ),
        note(
            "a path that does not begin with / is below the folder where the program was started; [ ] and * "
            "in it are "
            "patterns: "
            "rename"
        ),
    ),
)
FAMILY.fault(
    "checkpoint_damaged",
    Text("not an sstable (bad magic number)", "tensorflow 2.21 xla/tsl/lib/io/format.cc:66"),
    Text("Unable to open table file {prefix:s}: {}", "https://github.com/tflearn/tflearn/issues/517"),
    Text(
        "Checksum does not match: stored {} vs. calculated on the restored bytes",
        "tensorflow 2.21 tensorflow/core/util/tensor_bundle/tensor_bundle.cc:1019",
    ),
    Text("truncated block read", "tensorflow 2.21 xla/tsl/lib/io/format.cc:105"),
    Text("corrupted record at {:d}", "tensorflow 2.21 xla/tsl/lib/io/record_reader_writer_test.cc:266"),
    Text("truncated record at {:d}", "tensorflow 2.21 xla/tsl/lib/io/record_reader.cc:216"),
    "Unable to open file (truncated file{}",
    "Unable to synchronously open file (truncated file{}",
    "file is truncated{}eof = {:d}",
    meaning="a file of the model or of its data is not whole, or is not of the kind that it is read as",
    fix=(check("ls -l; file NAME", "its size and kind; load or copy it again"), _LFS),
    possible=True,
    follows=True,
)
FAMILY.fault(
    "checkpoint_of_another_model",
    Text(
        "Key {name:s} not found in checkpoint",
        "tensorflow 2.21 tensorflow/core/util/tensor_bundle/tensor_bundle.cc:871",
    ),
    "Assign requires shapes of both tensors to match. lhs shape= {} rhs shape= {}",
    "Restoring from checkpoint failed. This is most likely due to a mismatch between the current graph and the graph "
    "from "
    "the checkpoint",
    "Restoring from checkpoint failed. This is most likely due to a Variable name or other graph key that is missing "
    "from the "
    "checkpoint",
    Text(
        'Tensor name "{name:q}" not found in checkpoint files',
        "tensorflow 2.21 tensorflow/core/kernels/save_restore_tensor.cc:196",
    ),
    "Received incompatible tensor with shape {} when attempting to restore variable with shape {}",
    Text("Unresolved object in checkpoint", "tensorflow 2.21 tensorflow/python/checkpoint/checkpoint.py:837"),
    Text(
        "You are trying to load a weight file containing {:d} layers into a model with {:d} layers",
        "tensorflow 2.21 tensorflow/python/keras/saving/hdf5_format.py:688",
    ),
    "Shape mismatch in layer #{:d}",
    meaning="the checkpoint is of another model than the one that reads it: another architecture, number of classes, "
    "optimizer "
    "or release",
    fix=(
        check(
            "python -c \"import tensorflow as tf; print(*tf.train.list_variables('PREFIX'), sep='\\n')\"", "what it has"
        ),
        note(
            "train into an empty folder: an old checkpoint of another model is in it; or the same "
            "configuration as "
            "when it was saved",
            kind=Kind.EDIT_PROGRAM,
        ),
        note(
            "Keras: model.load_weights(path, by_name=True, skip_mismatch=True) takes what fits", kind=Kind.EDIT_PROGRAM
        ),
    ),
    possible=True,
)
