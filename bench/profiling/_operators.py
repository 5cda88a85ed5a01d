"""What torch's profiler saw of one call, as plain values: operators with their own times, shapes and kernels.

Names in the tree: ``aten::bmm`` is an operator of torch, ``autograd::engine::evaluate_function: BmmBackward0`` the
autograd engine at work on one step of the gradients; a *sequence number* ties that step to the forward operator whose
gradient it is. The range :data:`CALL` holds one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import Any

CALL = "attention-bench call"
"""Name of the range around a call, the same in every tool."""
TINY = "attention-bench tiny operator"
"""Name of the range around operators that do nothing, which shows what calling one costs under the profiler."""
GRADIENT = "autograd::engine::evaluate_function"
"""Begin of the name under which autograd computes one step of the gradients."""
_NO_OPERATOR = ("Allocation", "OutOfMemory", "Kineto")
"""Kinds of events in the tree besides operators; those of Kineto are launches and kernels, numbered on their own."""


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator was given."""

    sizes: tuple[int, ...]
    element_bytes: int
    distinct: int
    """Elements in memory; an axis that is repeated with stride 0 counts once."""
    address: int = 0
    """Of its storage; 0 where nobody says."""

    @property
    def distinct_bytes(self) -> int:
        """Bytes that are read at least."""
        return self.distinct * self.element_bytes


@dataclass(frozen=True)
class Kernel:
    """A kernel on the GPU, launched by an operator."""

    name: str
    time_ns: int


@dataclass(frozen=True)
class Operator:
    """One operator of one call."""

    name: str
    own_ns: int
    """Time without the operators that it called."""
    operands: tuple[Operand, ...] = ()
    """Tensors among its arguments, in their order."""
    within: tuple[str, ...] = ()
    """Names of the operators around it, outermost first, from below the range on."""
    sequence: int | None = None
    """Ties a forward operator to its gradient; the innermost step of the gradients around it, or its own."""
    kernels: tuple[Kernel, ...] = ()
    start_ns: int = 0
    """On the profiler's clock."""
    stop_ns: int = 0
    """The same."""

    @property
    def backward(self) -> bool:
        """Whether it computes gradients."""
        return any(name.startswith(GRADIENT) for name in (*self.within, self.name))


def read_calls(tree: Iterable[Any], kernels: Mapping[int, tuple[Kernel, ...]]) -> list[list[Operator]]:
    """Operators of each range :data:`CALL`, in the order of time; the range itself is the first of its operators.

    Args:
        tree: events of torch's profiler (private API).
        kernels: GPU kernels by the correlation number of the operator that launched them.
    """
    tree = list(tree)
    found = []
    for node in _ranges(tree, CALL):
        start, stop = int(node.start_time_ns), int(node.start_time_ns) + int(node.duration_time_ns)
        operators = list(_flat(node, (), None, kernels))
        for root in tree:  # on a GPU, autograd computes gradients in a thread of its own
            if root.name not in (CALL, TINY) and start <= int(root.start_time_ns) < stop:
                operators += _flat(root, (CALL,), None, kernels)
        found.append(sorted(operators, key=lambda one: one.start_ns))
    return found


def read_forward(tree: Iterable[Any]) -> list[Operator]:
    """Operators before the first call, or all where there is none: those of a forward call, for its gradients."""
    tree = list(tree)
    first = min((int(node.start_time_ns) for node in _ranges(tree, CALL)), default=inf)
    return [
        one
        for node in tree
        if node.name not in (CALL, TINY) and int(node.start_time_ns) < first
        for one in _flat(node, (), None, {})
    ]


def tiny_ns(tree: Iterable[Any], kernels: Mapping[int, tuple[Kernel, ...]]) -> list[int]:
    """What each operator within the ranges :data:`TINY` took: its kernels where it launched some, else itself."""
    found = []
    for node in _ranges(tree, TINY):
        for child in node.children:
            launched = kernels.get(int(child.correlation_id), ())
            found.append(sum(one.time_ns for one in launched) or int(child.duration_time_ns))
    return found


def read_kernels(events: Iterable[Any]) -> dict[int, tuple[Kernel, ...]]:
    """GPU kernels, copies and fills by the correlation number of the operator that launched each."""
    found: dict[int, tuple[Kernel, ...]] = {}
    for event in events:
        if event.device_type().name == "CPU" or event.name() in (CALL, TINY) or "user_annotation" in _kind(event):
            continue
        launched_by = int(event.linked_correlation_id())
        kernel = Kernel(str(event.name()), int(event.duration_ns()))
        found[launched_by] = (*found.get(launched_by, ()), kernel)
    return found


def _kind(event: Any) -> str:
    """What kind of activity; older torch does not tell."""
    return str(event.activity_type()) if hasattr(event, "activity_type") else ""


def _ranges(tree: Iterable[Any], name: str) -> Iterator[Any]:
    for node in tree:
        if node.name == name:
            yield node
        else:
            yield from _ranges(node.children, name)


def _flat(
    node: Any, within: tuple[str, ...], sequence: int | None, kernels: Mapping[int, tuple[Kernel, ...]]
) -> Iterator[Operator]:
    """The operator of a node, and those below it."""
    if node.tag.name in _NO_OPERATOR:
        return
    name = str(node.name)
    fields = node.extra_fields
    inputs = list(getattr(fields, "inputs", ()) or ())
    inside = any(one.startswith(GRADIENT) for one in within)
    own = getattr(fields, "sequence_number", -1)
    number = int(own) if own is not None and 0 <= own < 1 << 62 else None
    if inside:
        number = sequence
    yield Operator(
        name=name,
        own_ns=max(0, int(node.duration_time_ns) - sum(_duration(child) for child in node.children)),
        operands=tuple(operand(one) for one in _tensors(inputs)),
        within=within,
        sequence=number,
        kernels=kernels.get(int(node.correlation_id), ()),
        start_ns=int(node.start_time_ns),
        stop_ns=int(node.start_time_ns) + int(node.duration_time_ns),
    )
    for child in node.children:
        yield from _flat(child, (*within, name), number, kernels)


def _duration(node: Any) -> int:
    return 0 if node.tag.name in _NO_OPERATOR else int(node.duration_time_ns)


def _tensors(inputs: Iterable[Any]) -> Iterator[Any]:
    for one in inputs:
        if hasattr(one, "sizes"):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)


def operand(metadata: Any) -> Operand:
    """From the profiler's description of a tensor."""
    sizes, strides = tuple(metadata.sizes), tuple(metadata.strides)
    distinct = prod(size for size, stride in zip(sizes, strides, strict=True) if stride != 0)
    if not all(sizes):
        distinct = 0
    return Operand(sizes, int(metadata.dtype.itemsize), distinct, int(metadata.storage_data_ptr or 0))
