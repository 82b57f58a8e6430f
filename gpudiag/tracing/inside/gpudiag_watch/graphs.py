"""The graphs of functions and sessions as they ran: devices, copies, and clusters of XLA."""

import os

from .kernels import PASSING, PLUMBING, gpu_kernel, kernels_of
from .lines import is_by_strategy, line_of_operation
from .notes import note, short_device, state

MOST_GRAPHS = 300
"""Graphs of functions that are looked at in a process."""
_MOST_COLLECTED = 512
_SENDS, _RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
MOST_NODES = 40
"""Lines of one function's operations on the CPU that are noted."""


def look_at_function(name: str, scope: str) -> None:
    """Note where the operations of a function ran that was called in the device scope ``scope``."""
    if state.looked_at >= MOST_GRAPHS:
        return
    state.looked_at += 1
    if state.looked_at == MOST_GRAPHS:
        state.context.disable_graph_collection()
        note("enough", what="functions", number=MOST_GRAPHS)
    metadata = state.context.export_run_metadata()
    for number, graphs in enumerate(_graphs_of(name, metadata.function_graphs)):
        devices = [graph.node[0].device for graph in graphs.partition_graphs if graph.node]
        if len(set(devices)) < len(devices):
            continue  # TensorFlow has put the graphs of two functions together that two threads called
        asked = {node.name: node.device for node in graphs.pre_optimization_graph.node if node.device}
        note_graphs(
            name,
            number,
            graphs.partition_graphs,
            lambda node, asked=asked: asked.get(node, ""),
            lambda node: _operation(name, node),
            scope,
            _cpu_variables(state.graphs[name]()),
        )


def _graphs_of(name, collected) -> list:
    """Return the graphs of one function among all that TensorFlow has collected.

    It makes a graph of each single operation, too, and of what other threads run, such as the functions of tf.data: the
    graph of this function has the names of its operations.
    """
    reference = state.graphs.get(name)
    graph = None if reference is None else reference()
    if graph is None:
        return []
    own = {operation.name for operation in graph.get_operations() if operation.type != "Placeholder"}
    found = []
    for graphs in collected[-_MOST_COLLECTED:]:
        names = {node.name for node in graphs.pre_optimization_graph.node if node.op not in ("_Arg", "_Retval")}
        if names and names <= own and 2 * len(names) >= len(own):
            found.append(graphs)
    return found


def note_graphs(name, number, graphs, asked_of, operation_of, scope="", cpu_variables=0) -> None:
    """Note the devices of graphs as they ran, the operations on the CPU, the copies and the clusters of XLA in them.

    ``asked_of`` returns the device that a node asked for, ``operation_of`` the operation that it was made from;
    ``scope`` is the device scope of the call, ``cpu_variables`` how many variables on the CPU the function uses.
    """
    counts: dict = {}
    blamed: dict = {}
    clusters = 0
    left = {}
    for graph in graphs:
        for node in graph.node:
            device = short_device(node.device)
            if node.op not in PASSING:
                counts[device] = counts.get(device, 0) + 1
            if node.op == "_XlaCompile":
                clusters += 1
            elif node.op not in _SENDS + _RECEIVES and ("GPU" in device or not state.gpus):
                left[node.op.removeprefix("_Mkl")] = left.get(node.op.removeprefix("_Mkl"), 0) + 1
            asked = asked_of(node.name)
            if ("CPU" in device and (state.gpus or "GPU" in asked)) or ("GPU" in device and _is_not_there(asked)):
                op = node.op.removeprefix("_Mkl")
                kernel = gpu_kernel(op, node.attr)
                if kernel != "plain":
                    operation = operation_of(node.name)
                    kernel = "strategy" if kernel == "yes" and _is_for_strategy(operation, asked) else kernel
                    key = (op, device, asked, kernel, line_of_operation(operation))
                    blamed[key] = blamed.get(key, 0) + 1
    if not any(graph.node for graph in graphs):
        return
    jit = _wants_clusters()
    note(
        "graph",
        function=name,
        number=number,
        scope=scope,
        devices=counts,
        types=_types_on_gpus(graphs),
        cpu_variables=cpu_variables,
        copies=copies_in(graphs, operation_of),
        branches=any(node.op in ("Enter", "Switch") for graph in graphs for node in graph.node),
        clusters=clusters if clusters or jit else None,
        outside=_outside(left) if jit else {},
        cpu=[(*key, times) for key, times in list(blamed.items())[:MOST_NODES]],
        cut=max(0, len(blamed) - MOST_NODES),
    )


def copies_in(graphs, operation_of) -> dict:
    """Return for each direction the copies in one run of the graphs: their number, bytes, and those of unknown size.

    What TensorFlow sends only to say that an operation has ended is a constant without elements, and is no copy.
    """
    copies: dict = {"to host": [0, 0, 0], "to device": [0, 0, 0], "between GPUs": [0, 0, 0]}
    sends = {}
    for graph in graphs:
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            if node.op in _SENDS:
                source, _, number = node.input[0].partition(":")
                if not _is_empty(nodes.get(source)):
                    sent = _memory(node.op, short_device(node.device)), source, int(number or 0)
                    sends[node.attr["tensor_name"].s] = sent
    for node in (node for graph in graphs for node in graph.node if node.op in _RECEIVES):
        memory, source, number = sends.get(node.attr["tensor_name"].s, (None, "", 0))
        target = _memory(node.op, short_device(node.device))
        if memory is None or memory == target:
            continue
        size = _bytes_of(source, number, node.attr["tensor_type"].type, operation_of)
        total = copies["to host" if not target else "between GPUs" if memory else "to device"]
        total[0] += 1
        total[1] += size or 0
        total[2] += size is None
    return copies


def _is_empty(node) -> bool:
    """Return whether a node is a constant without elements."""
    return (
        node is not None
        and node.op == "Const"
        and any(not dim.size for dim in node.attr["value"].tensor.tensor_shape.dim)
    )


def _cpu_variables(graph) -> int:
    """Return how many variables on the CPU a function uses; 0 if that is not known."""
    try:
        return sum("CPU" in variable.device for variable in graph.variables)
    except Exception:  # one was deleted
        return 0


def _is_for_strategy(operation, asked) -> bool:
    """Return whether TensorFlow's own code of a strategy made an operation, and not for a GPU."""
    files = [entry.filename for entry in operation.traceback] if operation is not None else []
    return "GPU" not in asked and is_by_strategy(reversed(files))


def _types_on_gpus(graphs) -> dict:
    """Return the types of operation on each GPU."""
    found: dict = {}
    for graph in graphs:
        for node in graph.node:
            device = short_device(node.device)
            if "GPU" in device and node.op not in PASSING:
                found.setdefault(device, set()).add(node.op)
    return {device: sorted(types)[:MOST_NODES] for device, types in found.items()}


def _memory(op, device) -> str:
    """Return the GPU in whose memory the tensor is that a node sends or receives; "" for the host's."""
    return "" if op.startswith("_Host") or "GPU" not in device else device


def _is_not_there(asked) -> bool:
    """Return whether a certain GPU was asked for that this process does not have.

    If it has it, an operation on another one follows its variable, as those of TensorFlow's own strategies do.
    """
    number = asked.rpartition(":GPU:")[2]
    return number.isdecimal() and ":GPU:" in asked and "GPU:%s" % number not in state.gpus


def _bytes_of(name, number, dtype, operation_of):
    """Return the size of an output of a node; None if it is not known before the graph runs."""
    operation = operation_of(name)
    if operation is None or not f"/{name}".endswith(f"/{operation.name}") or number >= len(operation.outputs):
        return None
    output = operation.outputs[number]
    elements = output.shape.num_elements() if output.dtype.as_datatype_enum == dtype else None
    return None if elements is None else elements * output.dtype.size


def _wants_clusters() -> bool:
    """Return whether TensorFlow was asked to form clusters for XLA by itself."""
    if "tf_xla_auto_jit" in os.environ.get("TF_XLA_FLAGS", ""):
        return True
    return bool(getattr(state.context, "_optimizer_jit", None))  # None before there is a context


def _outside(ops) -> dict:
    """Return the types of the operations outside of every cluster, and whether XLA has a kernel for each."""
    device = "XLA_GPU_JIT" if state.gpus else "XLA_CPU_JIT"
    found = {}
    for op, _ in sorted(ops.items(), key=lambda item: -item[1]):
        if op not in PLUMBING and not op.startswith(("_", "Xla")) and len(found) < MOST_NODES:
            found[op] = any(kernel == device for kernel, _ in kernels_of(op))
    return found


def _operation(function, node):
    """Return the operation that a node of a function, or of a function that was inlined into it, was made from."""
    reference = state.graphs.get(function)
    graph = None if reference is None else reference()
    if graph is None:
        return None
    parts = node.split("/")
    for number in range(len(parts), 0, -1):
        prefix = "/".join(parts[:number])
        try:
            operation = graph.get_operation_by_name(prefix)
        except Exception:  # noqa: S112  (there is none of this name)
            continue
        branch = _BRANCHES.get(parts[number]) if number < len(parts) else None
        rest = "/".join(parts[number + 2 :] if branch else parts[number:])  # cond/then/_12/...
        try:
            inner = operation.get_attr(branch or "f").name
        except Exception:
            inner = ""
        found = _operation(inner, rest) if rest and inner not in ("", function) else None
        return found or operation
    return None


_BRANCHES = {"then": "then_branch", "else": "else_branch", "body": "body", "cond": "cond"}
"""What a node of a branch or a loop has in its name, to the attribute of the operation that names its function."""
