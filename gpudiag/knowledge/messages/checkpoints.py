"""Messages of TensorFlow about model files: checkpoints, SavedModels, HDF5 and records that cannot be read."""

from __future__ import annotations

from gpudiag.fix import ask, check, edit, edit_note, note
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "files of models",
    stage=Stage.PROGRAM,
    seen="0.12-2.21",
    url="https://www.tensorflow.org/guide/checkpoint",
)

_LFS = note(
    "if the file has only a few lines, it is a git-lfs pointer or the page of a failed "
    "download: run git lfs pull, or download it again"
)

FAMILY.fault(
    "checkpoint_by_its_part",
    "Could not open {prefix:s}.data-{:d}-of-{:d}: Data loss: not an sstable",
    "Unable to open table file {prefix:s}.data-{:d}-of-{:d}: {}not an sstable",
    "Unable to open table file {prefix:s}.index: {}",
    "Unable to open table file {prefix:s}.meta: {}",
    "Failed to find any matching files for {prefix:s}.index",
    "Failed to find any matching files for {prefix:s}.meta",
    "Failed to find any matching files for {prefix:s}.data",
    meaning="the program names one of the checkpoint's files instead of their common prefix",
    fix=(
        edit_note("pass {prefix}, without .data-00000-of-00001, .index or .meta: saver.restore(session, '{prefix}')"),
        edit("tf.train.latest_checkpoint('FOLDER')", "finds it"),
    ),
)
FAMILY.fault(
    "checkpoint_not_there",
    "Unsuccessful TensorSliceReader constructor: Failed to get matching files on {prefix:s}: {}",
    "Failed to find any matching files for {prefix:s}",
    "The passed save_path is not a valid checkpoint: {prefix:s}",
    "SavedModel file does not exist at: {prefix:s}",
    "Could not find trained model in model_dir: {prefix:s}",
    "No file or directory found at {prefix:s}",
    meaning="no model or checkpoint was found at the path that the program gives: {prefix}",
    in_general="no model or checkpoint was found at the path that the program gives",
    fix=(
        check(
            "ls -l $(dirname {prefix})",
            "a checkpoint is NAME.index and NAME.data-..., a SavedModel is a folder with "
            "saved_model.pb; check that it was downloaded and unpacked",
        ),
        note(
            "a path that does not begin with / starts in the folder where the program was started; if"
            " the name has [ ] or *, rename it: they are patterns"
        ),
    ),
)
FAMILY.fault(
    "checkpoint_damaged",
    "not an sstable (bad magic number)",
    "Unable to open table file {prefix:s}: {}",
    "Checksum does not match: stored {} vs. calculated on the restored bytes",
    "truncated block read",
    "corrupted record at {:d}",
    "truncated record at {:d}",
    "Unable to open file (truncated file{}",
    "Unable to synchronously open file (truncated file{}",
    meaning="a file of the model or of its data is incomplete, or has another format than expected",
    fix=(check("ls -l; file NAME", "check its size and type; download or copy it again"), _LFS),
    symptom=True,
)
FAMILY.fault(
    "checkpoint_of_another_model",
    "Key {name:s} not found in checkpoint",
    "Assign requires shapes of both tensors to match. lhs shape= {} rhs shape= {}",
    'Tensor name "{name:q}" not found in checkpoint files',
    "Unresolved object in checkpoint",
    "You are trying to load a weight file containing {:d} layers into a model with {:d} layers",
    "Shape mismatch in layer #{:d}",
    "Restoring from checkpoint failed. This is most likely due to a mismatch between the current graph "
    "and the graph from the checkpoint",
    "Restoring from checkpoint failed. This is most likely due to a Variable name or other graph key "
    "that is missing from the checkpoint",
    "Received incompatible tensor with shape {} when attempting to restore variable with shape {}",
    meaning="the checkpoint does not fit the model that loads it: architecture, number of classes, "
    "optimizer or release differs",
    fix=(
        ask(
            "python -c \"import tensorflow as tf; print(*tf.train.list_variables('PREFIX'), sep='\\n')\"",
            "shows what it contains",
        ),
        edit_note(
            "use an empty folder for training if this one contains another model's checkpoint; "
            "otherwise use the configuration it was saved with"
        ),
        edit_note(
            "in Keras, model.load_weights(path, by_name=True, skip_mismatch=True) loads only the weights that fit"
        ),
    ),
    confidence=Confidence.POSSIBLE,
)
