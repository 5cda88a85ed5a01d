"""The mask is not the one that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.masks import Intersection, Mask, attended_pairs, dense_rows, parse_mask
from bench.masks.sliding_window import SlidingWindow
from bench.mutants import CORRECT, Mutant, correct_keep, keep_of, mutants
from bench.problem import Problem

if TYPE_CHECKING:
    import torch


def _members(problem: Problem) -> tuple[Mask, ...]:
    return problem.mask.members if isinstance(problem.mask, Intersection) else (problem.mask,)


def _has(problem: Problem, *names: str) -> bool:
    return any(member.name in names for member in _members(problem))


def _with(problem: Problem, exchange: Callable[[Mask], str]) -> Problem:
    """The problem with each member of its mask replaced by an expression."""
    mask = parse_mask(" & ".join(exchange(member) for member in _members(problem)))
    return problem.model_copy(update={"mask": mask})


def _differs(problem: Problem, other: Problem) -> bool:
    """Whether two masks differ, by pairs counted apart and together."""
    shape = problem.mask_shape
    return not (
        attended_pairs(problem.mask, shape)
        == attended_pairs(other.mask, shape)
        == attended_pairs(problem.mask & other.mask, shape)
    )


def _exchanged(
    name: str, summary: str, change: Callable[[Problem], Problem], applies: Callable[[Problem], bool]
) -> None:
    """A mutant that computes another mask."""

    def keep(problem: Problem, batch: int, rows: slice) -> torch.Tensor:
        return keep_of(problem, change(problem), batch, rows)

    def really(problem: Problem) -> bool:
        return applies(problem) and _differs(problem, change(problem))

    mutants.add(name, Mutant(name, summary, replace(CORRECT, keep=keep), really))


_exchanged(
    "no_causal_mask",
    "the causal part of the mask is ignored",
    lambda p: _with(p, lambda m: "full" if m.name in ("causal", "causal_top_left") else m.spec),
    lambda p: _has(p, "causal", "causal_top_left"),
)
_exchanged(
    "other_corner",
    "the causal triangle is aligned to the other corner",
    lambda p: _with(p, lambda m: {"causal": "causal_top_left", "causal_top_left": "causal"}.get(m.name, m.spec)),
    lambda p: _has(p, "causal", "causal_top_left"),
)
_exchanged(
    "window_off_by_one",
    "the window is one key too wide",
    lambda p: _with(p, lambda m: f"sliding_window({m.window + 1})" if isinstance(m, SlidingWindow) else m.spec),
    lambda p: _has(p, "sliding_window"),
)

_BANDS = ("causal", "causal_top_left", "sliding_window", "prefix_lm")

for _shift, _name, _summary in (
    (1, "diagonal_one_late", "each query sees one key too many: the next one"),
    (-1, "diagonal_one_early", "each query misses its own key"),
):

    def _moved(problem: Problem, batch: int, rows: slice, shift: int = _shift) -> torch.Tensor:
        return keep_of(problem, problem, batch, rows, shift)

    mutants.add(
        _name,
        Mutant(
            _name,
            _summary,
            replace(CORRECT, keep=_moved),
            lambda p: _has(p, *_BANDS) and p.seqlen_k > 1 and p.seqlen_q > 1,
        ),
    )


def _padding_on_queries(problem: Problem, batch: int, rows: slice) -> torch.Tensor:
    """Keys past the valid ones are visible, queries past them are not."""
    import torch

    full = _with(problem, lambda m: "full" if m.name == "padding" else m.spec)
    keep = keep_of(problem, full, batch, rows).clone()
    for member in _members(problem):
        if member.name == "padding":
            first = dense_rows(member, problem.mask_shape, batch, 0, slice(0, 1))[0]
            valid = torch.zeros(max(problem.seqlen_q, problem.seqlen_k), dtype=torch.bool)
            valid[: problem.seqlen_k] = torch.from_numpy(first.copy())
            keep &= valid[: problem.seqlen_q][rows, None]
    return keep


mutants.add(
    "padding_on_queries",
    Mutant(
        "padding_on_queries",
        "the padding hides queries instead of keys",
        replace(CORRECT, keep=_padding_on_queries),
        lambda p: _has(p, "padding") and p.attended_pairs < p.all_pairs,
    ),
)
mutants.add(
    "inverted_polarity",
    Mutant(
        "inverted_polarity",
        "True means blocked instead of attend",
        replace(CORRECT, keep=lambda problem, batch, rows: ~correct_keep(problem, batch, rows)),
        lambda p: p.attended_pairs < p.all_pairs,
    ),
)
