"""What the names of operators and kernels say: the table of the stages of the theory, and what kind an operator is.

What is in no table is ``other``, by name.
"""

from __future__ import annotations

from bench.profiling._operators import Operator

PROJECTIONS, SCORES, SCALE, SOFTMAX = "projections", "score product", "scale and mask", "softmax"
VALUES, FUSED, COMPILED, COPIES = "value product", "fused attention", "compiled code", "layout copies"
ALLOCATION, OTHER, OVERHEAD = "allocation", "other", "overhead"
STAGES = (PROJECTIONS, SCORES, SCALE, SOFTMAX, VALUES, FUSED, COMPILED, COPIES, ALLOCATION, OTHER, OVERHEAD)
"""In the order of the theory. ``allocation`` holds filling with a constant as well; ``overhead`` views and Python."""
ARITHMETIC = frozenset({PROJECTIONS, SCORES, SCALE, SOFTMAX, VALUES})

PRODUCT, FACTOR, SUM = "product", "factor", "sum"
"""Kinds whose stage follows from what they are given."""
_NAMES: dict[str, str] = {
    PRODUCT: "mm bmm addmm baddbmm addbmm",
    FACTOR: "mul div",
    SUM: "add",
    SCALE: "masked_fill where tril triu logical_and bitwise_and bitwise_not le ge lt gt",
    SOFTMAX: "_softmax _softmax_backward_data _masked_softmax exp exp2 amax max sum sub maximum log log2 logsumexp "
    "reciprocal neg eq ne all any logical_not isneginf",
    COPIES: "copy clone _to_copy cat stack repeat repeat_interleave index_select index gather constant_pad_nd",
    ALLOCATION: "empty empty_like empty_strided new_empty new_empty_strided resize zeros zeros_like new_zeros zero "
    "ones ones_like fill full full_like scalar_tensor arange",
    OVERHEAD: "view _unsafe_view reshape _reshape_alias transpose t permute expand expand_as as_strided slice select "
    "narrow unflatten flatten unsqueeze squeeze detach alias resolve_conj resolve_neg lift_fresh is_same_size "
    "result_type matmul softmax linear unbind split chunk scaled_dot_product_attention _safe_softmax view_as "
    "_scaled_dot_product_attention_math _fused_sdp_choice item _local_scalar_dense is_nonzero numpy_T sum_to_size "
    "to contiguous real einsum pad",
}
STAGE_OF: dict[str, str] = {name: stage for stage, names in _NAMES.items() for name in names.split()}
"""Stage by the name of an operator, without ``aten::`` and the underscore of those that work in place."""
_FUSED_WORDS = (
    *(f"{kind}_attention" for kind in ("flash", "efficient", "cudnn", "flex", "triton")),
    "flash_attn",
)
_COMPILED_WORDS = ("CompiledFxGraph", "Torch-Compiled Region", "cpp_fused", "triton_per_fused", "triton_poi_fused")
_REPEATED = ("ExpandBackward", "RepeatBackward", "RepeatInterleaveBackward")
_SOFTMAX_PARTS = frozenset({"aten::logsumexp", "aten::_safe_softmax"})
_KERNEL_WORDS = {
    FUSED: ("flash", "fmha", "attention", "forward_kernel", "backward_kernel", "_fwd_", "_bwd_"),
    SOFTMAX: ("softmax",),
    COMPILED: ("triton_",),
    COPIES: ("Memcpy", "copy"),
    ALLOCATION: ("Memset", "FillFunctor"),
}
"""For GPU kernels that no operator launched, such as Triton's: words in their names."""


def kernel_stage(name: str) -> str:
    """Stage of a GPU kernel that no operator launched."""
    return next((stage for stage, words in _KERNEL_WORDS.items() if any(word in name for word in words)), OTHER)


def root(name: str) -> str:
    """Name as in the table."""
    plain = name.removeprefix("aten::")
    return plain[:-1] if plain.endswith("_") and not plain.endswith("__") else plain


def named_stage(name: str) -> str:
    """The stage by the name alone, or the kind where the name does not say."""
    if is_compiled(name):
        return COMPILED
    if is_fused(name):
        return FUSED
    if name.startswith("aten::"):
        return STAGE_OF.get(root(name), OTHER)
    library, separator, _ = name.partition("::")
    # The autograd engine, ranges and Python functions do nothing themselves; an operator of a library does.
    return OTHER if separator and library.isidentifier() and library not in ("autograd", "torch") else OVERHEAD


def is_fused(name: str) -> bool:
    """Whether one operator does all of attention."""
    return any(word in name for word in _FUSED_WORDS)


def is_compiled(name: str) -> bool:
    """Whether a compiler made it."""
    return any(word in name for word in _COMPILED_WORDS)


def is_product(name: str) -> bool:
    """Whether it multiplies matrices."""
    return name.startswith("aten::") and STAGE_OF.get(root(name)) == PRODUCT


def is_nested(one: Operator) -> bool:
    """Whether a product is part of another one, which computes it head by head."""
    return any(is_product(name) for name in one.within)


def is_softmax_part(one: Operator) -> bool:
    """Whether it runs within an operator that is softmax as a whole."""
    return not _SOFTMAX_PARTS.isdisjoint(one.within)


def sums_repeated(one: Operator) -> bool:
    """Whether it adds up the gradients of what the forward call repeated, such as keys of a group of heads."""
    return root(one.name) == "sum" and any(name.startswith(_REPEATED) for name in one.within)
