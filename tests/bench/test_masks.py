from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import bench.masks
from bench.errors import BenchError, MaskError, UnknownNameError
from bench.masks import (
    Mask,
    MaskShape,
    Structure,
    attended_pairs,
    dense_rows,
    empty_rows,
    intersection,
    masks,
    parse_mask,
)


def shape_of(seqlen_q: int, seqlen_k: int, batch_size: int = 1, num_heads: int = 1) -> MaskShape:
    return MaskShape(batch_size=batch_size, num_heads=num_heads, seqlen_q=seqlen_q, seqlen_k=seqlen_k)


@st.composite
def shapes(draw: st.DrawFn) -> MaskShape:
    seqlen_k = draw(st.integers(1, 20))
    seqlen_q = draw(st.one_of(st.just(seqlen_k), st.integers(1, 20)))  # masks for self-attention need equality
    return shape_of(seqlen_q, seqlen_k, draw(st.integers(1, 3)), draw(st.integers(1, 2)))


@st.composite
def single_masks(draw: st.DrawFn, shape: MaskShape) -> Mask:
    """Any registered mask that fits ``shape``; a required parameter is taken to be a whole number."""
    member = masks.get(draw(st.sampled_from(masks.names())))
    if member.name == "padding":
        valid = st.integers(0, shape.seqlen_k)
        counts = st.lists(valid, min_size=shape.batch_size, max_size=shape.batch_size).map(tuple)
        share = st.floats(0, 1, exclude_max=True)
        how = draw(st.one_of(st.tuples(share, st.none()), st.tuples(st.none(), counts)))
        mask = member(*how, draw(st.sampled_from(["left", "right"])))
    else:
        required = [f for f in dataclasses.fields(member) if f.default is dataclasses.MISSING]
        parameters = [draw(st.integers(0, shape.seqlen_k + 2)) for _ in required]
        assume(not any(p == 0 for p in parameters) or member.name == "prefix_lm")
        mask = member(*parameters)
    try:
        mask.check(shape)
    except MaskError:
        assume(False)
    return mask


@st.composite
def fitting_masks(draw: st.DrawFn, count: int = 1) -> tuple[MaskShape, list[Mask]]:
    shape = draw(shapes())
    parts = st.lists(single_masks(shape), min_size=1, max_size=3)
    return shape, [intersection(*draw(parts)) for _ in range(count)]


def brute_force(mask: Mask, shape: MaskShape) -> np.ndarray:
    """``keep`` asked pair by pair: bool ``(batch_size, num_heads, seqlen_q, seqlen_k)``."""
    tables = {name: np.asarray(table) for name, table in mask.tables(shape).items()}
    sizes = (shape.batch_size, shape.num_heads, shape.seqlen_q, shape.seqlen_k)
    kept = np.zeros(sizes, dtype=bool)
    for index in itertools.product(*map(range, sizes)):
        kept[index] = mask.keep(*index, shape, tables)
    return kept


def from_structure(structure: Structure, shape: MaskShape) -> np.ndarray:
    """What the docstring of Structure says, pair by pair: bool ``(batch_size, seqlen_q, seqlen_k)``."""
    sizes = (shape.batch_size, shape.seqlen_q, shape.seqlen_k)
    kept = np.ones(sizes, dtype=bool)
    for b, i, j in itertools.product(*map(range, sizes)):
        if structure.left is not None:
            kept[b, i, j] &= i + structure.left <= j
        if structure.right is not None:
            kept[b, i, j] &= j <= i + structure.right
        if structure.key_start:
            kept[b, i, j] &= structure.key_start[b] <= j
        if structure.key_stop:
            kept[b, i, j] &= j < structure.key_stop[b]
        for low, high in itertools.pairwise(structure.documents):
            kept[b, i, j] &= (low <= i < high) == (low <= j < high)
    return kept


@given(fitting_masks())
def test_structure_and_ranges_say_the_same_as_keep(drawn: tuple[MaskShape, list[Mask]]) -> None:
    shape, (mask,) = drawn
    kept = brute_force(mask, shape)
    for b, h in itertools.product(range(shape.batch_size), range(shape.num_heads)):
        assert np.array_equal(dense_rows(mask, shape, b, h, slice(0, shape.seqlen_q)), kept[b, h])
        bounds = mask.row_range(b, shape)
        if bounds is not None:
            start, stop = (bound[:, None] for bound in bounds)
            keys = np.arange(shape.seqlen_k)
            assert np.array_equal((start <= keys) & (keys < stop), kept[b, h])
    structure = mask.structure(shape)
    if structure is not None:
        assert np.array_equal(from_structure(structure, shape), kept[:, 0])


@given(fitting_masks())
def test_counts_are_exact(drawn: tuple[MaskShape, list[Mask]]) -> None:
    shape, (mask,) = drawn
    kept = brute_force(mask, shape)
    assert attended_pairs(mask, shape) == kept.sum()
    assert empty_rows(mask, shape) == (~kept.any(axis=-1)).sum()


@given(fitting_masks())
def test_keep_says_the_same_on_torch_tensors(drawn: tuple[MaskShape, list[Mask]]) -> None:
    import torch

    shape, (mask,) = drawn
    tables = {name: torch.tensor(table) for name, table in mask.tables(shape).items()}
    sizes = (shape.batch_size, shape.num_heads, shape.seqlen_q, shape.seqlen_k)
    index = torch.meshgrid(*(torch.arange(n) for n in sizes), indexing="ij")
    kept = mask.keep(*index, shape, tables)
    assert kept.dtype == torch.bool
    assert np.array_equal(kept.numpy(), brute_force(mask, shape))


@given(fitting_masks())
def test_an_expression_builds_the_same_mask_again(drawn: tuple[MaskShape, list[Mask]]) -> None:
    _, (mask,) = drawn
    assert parse_mask(mask.spec) == mask
    assert parse_mask(mask.spec).spec == mask.spec


@given(fitting_masks(count=3))
def test_intersection_is_commutative_associative_and_idempotent(drawn: tuple[MaskShape, list[Mask]]) -> None:
    _, (a, b, c) = drawn
    assert a & b == b & a
    assert (a & b) & c == a & (b & c)
    assert a & a == a
    assert (a & b) & a == a & b
    assert a & parse_mask("full") == a


@given(fitting_masks(count=2))
def test_intersection_keeps_what_both_keep(drawn: tuple[MaskShape, list[Mask]]) -> None:
    shape, (a, b) = drawn
    assert np.array_equal(brute_force(a & b, shape), brute_force(a, shape) & brute_force(b, shape))


@dataclass(frozen=True)
class Stripes(Mask):
    """Head ``h`` sees the keys with ``key % (h + 2) == 0``: rows with gaps that depend on the head."""

    name: ClassVar[str] = "stripes"

    def keep(self, batch: Any, head: Any, q_idx: Any, k_idx: Any, shape: MaskShape, tables: Mapping[str, Any]) -> Any:
        return (k_idx % (head + 2) == 0) & (q_idx % 3 != 0)


@pytest.mark.parametrize("chunk", [1, 7, 20, 1 << 24])
def test_masks_without_ranges_are_counted_in_chunks(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(bench.masks, "ROWS_PER_CHUNK_ENTRIES", chunk)
    shape, mask = shape_of(11, 7, batch_size=2, num_heads=3), Stripes()
    kept = brute_force(mask, shape)
    assert mask.row_range(0, shape) is None
    assert attended_pairs(mask, shape) == kept.sum()
    assert empty_rows(mask, shape) == (~kept.any(axis=-1)).sum() == 4 * 6
    both = mask & parse_mask("causal")
    assert both.row_range(0, shape) is None
    assert both.structure(shape) is None
    assert attended_pairs(both, shape) == brute_force(both, shape).sum()


@pytest.mark.parametrize(
    ("mask", "seqlen_q", "seqlen_k", "pairs"),
    [
        ("causal", 4, 4, 10),
        ("causal", 16, 16, 136),
        ("causal", 512, 512, 131_328),
        ("causal", 1024, 1024, 524_800),
        ("causal_top_left", 1024, 1024, 524_800),
        ("causal_top_left", 128, 4096, 8_256),
        ("causal", 128, 4096, 516_160),
        ("causal", 4096, 128, 8_256),
        ("causal_top_left", 1, 16, 1),
        ("causal", 1, 16, 16),
        ("causal", 1, 4096, 4_096),
        ("sliding_window(128)", 8192, 8192, 1_040_448),
        ("sliding_window(2048)", 4096, 4096, 6_292_480),
        ("document(4)", 4096, 4096, 4 * 1024 * 1024),
        ("prefix_lm(256)", 1024, 1024, 524_800 + 256 * 255 // 2),
        ("full", 1024, 2048, 1024 * 2048),
    ],
)
def test_pair_counts_that_others_published(mask: str, seqlen_q: int, seqlen_k: int, pairs: int) -> None:
    assert attended_pairs(parse_mask(mask), shape_of(seqlen_q, seqlen_k)) == pairs


def drawn(mask: str, shape: MaskShape, batch: int = 0) -> str:
    rows = dense_rows(parse_mask(mask), shape, batch, 0, slice(0, shape.seqlen_q))
    return " ".join("".join("x" if kept else "." for kept in row) for row in rows)


@pytest.mark.parametrize(
    ("mask", "seqlen_q", "seqlen_k", "picture"),
    [
        ("causal", 3, 3, "x.. xx. xxx"),
        ("causal_top_left", 2, 4, "x... xx.."),
        ("causal", 2, 4, "xxx. xxxx"),
        ("causal", 4, 2, ".. .. x. xx"),
        ("causal", 1, 4, "xxxx"),
        ("causal_top_left", 1, 4, "x..."),
        ("sliding_window(2)", 4, 4, "x... xx.. .xx. ..xx"),
        ("sliding_window(1)", 2, 4, "..x. ...x"),
        ("prefix_lm(2)", 4, 4, "xx.. xx.. xxx. xxxx"),
        ("document(2)", 4, 4, "xx.. xx.. ..xx ..xx"),
        ("document(2)", 5, 5, "xxx.. xxx.. xxx.. ...xx ...xx"),
        ("padding(lengths=[3])", 2, 4, "xxx. xxx."),
        ("padding(lengths=[3], side=left)", 2, 4, ".xxx .xxx"),
        ("causal & padding(lengths=[3], side=left)", 4, 4, ".... .x.. .xx. .xxx"),
        ("padding(lengths=[0])", 2, 2, ".. .."),
    ],
)
def test_masks_look_as_drawn(mask: str, seqlen_q: int, seqlen_k: int, picture: str) -> None:
    assert drawn(mask, shape_of(seqlen_q, seqlen_k)) == picture


def test_padding_by_share_differs_within_a_batch() -> None:
    shape = shape_of(1, 8, batch_size=4)
    rows = [drawn("padding(0.5)", shape, batch) for batch in range(4)]
    assert rows == ["xxxxxxx.", "xxxxxx..", "xxxxx...", "xxxx...."]
    assert drawn("padding(0.5, side=left)", shape, 3) == "....xxxx"


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("  causal  ", "causal"),
        ("causal()", "causal"),
        ("padding(0.5) & causal", "causal & padding(0.5)"),
        ("full & causal & full", "causal"),
        ("full & full", "full"),
        ("causal & (sliding_window(4) & causal)", "causal & sliding_window(4)"),
        ("padding(fraction=0.25, side='left')", "padding(0.25, side=left)"),
        ("padding(lengths=[3, 4], side=right)", "padding(lengths=[3, 4])"),
        ("sliding_window(window=256)", "sliding_window(256)"),
    ],
)
def test_expressions_are_normalised(text: str, spec: str) -> None:
    assert parse_mask(text).spec == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("causal &", "mask must be an expression such as"),
        ("", "mask must be an expression such as"),
        ("causal | full", "mask must be masks joined by '&', got 'causal | full'"),
        ("3", "mask must be masks joined by '&', got '3'"),
        ("a.b(1)", "mask must be masks joined by '&'"),
        ("padding(lengths=[1, x])", "mask parameter must be a number, a word or a list"),
        ("padding(*[1])", "mask parameter must be a number, a word or a list"),
        ("padding({[]: 1})", "mask parameter must be a number, a word or a list"),
        ("causal(3)", r"mask causal must be given its parameters \(none\), got 'causal\(3\)'"),
        ("causal(**{'a': 1})", r"mask causal must be given its parameters \(none\)"),
        ("sliding_window", r"mask sliding_window must be given its parameters \(window\)"),
        ("sliding_window(0)", "sliding_window must be a whole number of keys of at least 1, got 0"),
        ("sliding_window(1.5)", "sliding_window must be a whole number of keys of at least 1, got 1.5"),
        ("sliding_window(True)", "sliding_window must be a whole number"),
        ("prefix_lm(-1)", "prefix_lm must be a whole number of keys of at least 0, got -1"),
        ("document(0)", "document must be a whole number of documents of at least 1, got 0"),
        ("padding", "padding must have either a fraction or lengths, got None and None"),
        ("padding(0.5, lengths=[1])", "padding must have either a fraction or lengths"),
        ("padding(1)", "padding fraction must be at least 0 and below 1, got 1"),
        ("padding('half')", "padding fraction must be at least 0 and below 1, got 'half'"),
        ("padding(lengths=[-1])", "padding lengths must be a list of whole numbers"),
        ("padding(lengths=3)", "padding lengths must be a list of whole numbers"),
        ("padding(0.5, side=top)", "padding side must be left or right, got 'top'"),
    ],
)
def test_an_impossible_expression_is_refused(text: str, message: str) -> None:
    with pytest.raises(MaskError, match=message):
        parse_mask(text)


def test_an_unknown_mask_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"mask must be a known name, got 'casual'; did you mean causal"):
        parse_mask("casual & padding(0.5)")


@pytest.mark.parametrize(
    ("mask", "shape", "message"),
    [
        ("document(2)", shape_of(4, 8), "document must be used where seqlen_q equals seqlen_k, got 4 and 8"),
        ("document(9)", shape_of(8, 8), r"document must be at most seqlen_k \(8\), got 9"),
        ("prefix_lm(9)", shape_of(8, 8), r"prefix_lm must be at most seqlen_k \(8\), got 9"),
        ("padding(lengths=[1, 2])", shape_of(4, 4), r"one entry per batch item \(1\), got 2"),
        ("padding(lengths=[])", shape_of(4, 4), r"one entry per batch item \(1\), got 0"),
        ("padding(lengths=[5])", shape_of(4, 4), r"padding lengths must be at most seqlen_k \(4\), got 5"),
        ("causal & prefix_lm(9)", shape_of(8, 8), r"prefix_lm must be at most seqlen_k \(8\), got 9"),
    ],
)
def test_a_mask_that_does_not_fit_the_sizes_is_refused(mask: str, shape: MaskShape, message: str) -> None:
    with pytest.raises(MaskError, match=message):
        parse_mask(mask).check(shape)


ATOMS = [
    "causal",
    "padding",
    "full",
    "lengths",
    "side",
    "(",
    ")",
    "[",
    "]",
    "&",
    "=",
    ",",
    "0.5",
    "-1",
    "'",
    "*",
    " ",
]


@given(st.one_of(st.text(max_size=30), st.lists(st.sampled_from(ATOMS), max_size=12).map("".join)))
def test_any_text_is_a_mask_or_a_usage_error(text: str) -> None:
    try:
        mask = parse_mask(text)
    except BenchError as error:
        assert error.exit_code == 2
    else:
        assert parse_mask(mask.spec) == mask


@pytest.mark.parametrize("text", ["(" * 5000, "causal" + " & causal" * 5000, "causal\0"])
def test_absurd_text_is_a_usage_error_or_a_mask(text: str) -> None:
    with contextlib.suppress(MaskError):
        assert parse_mask(text).spec == "causal"
