"""Does the gate refuse what is right? Random problems, on which every correct implementation has to pass.

The mutants (``bench.gate``) show that the gate catches wrong results; one that refused everything would catch them
all. Here each seed draws a problem from the registries of masks, dtypes, directions and distributions, and each
implementation that takes it is judged as in a run: errors against float64 on random inputs, then the structured
checks. A few seeds more are judged at 16,384 positions. What an implementation does not take is counted apart: it is
neither passed nor refused.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, get_args, get_type_hints

from bench.certificate import attend_with, checks_reason
from bench.checks import affordable_checks, run_checks
from bench.errors import MaskError, NothingSelectedError, Unavailable, Unsupported
from bench.implementation import AttentionInputs, Implementation, implementations, refusal
from bench.inputs import make_inputs
from bench.masks import Mask, MaskShape, intersection, masks, parse_mask
from bench.numerics import agree
from bench.problem import Direction, Distribution, Dtype, Problem
from bench.reference import Reference, naive_yardstick, reference
from bench.sweep import Selection

Verdict = Literal["passed", "refused", "unsupported"]

EVERYTHING = Selection()
"""Filters that let everything through."""

SEEDS = range(200)
"""Seeds of the short problems."""
LONG_SEEDS = range(5)
"""Seeds of the long ones."""
SHORT = 256
"""Longest query and key axis of a short problem."""
LONG = 16384
"""Queries and keys of a long problem."""
EDGE_LENGTHS = (1, 2, 17, 64, 65, 127, 128, SHORT)
"""Half of the lengths come from here, half from all lengths up to ``SHORT``."""
EDGE_WIDTHS = (1, 16, 64, 80, 128)
"""As above, for head widths up to 128."""
SCALES = (None, None, None, None, 0.0, -0.1, 0.5)
"""Mostly the default; zero and negative scales are legal."""
WORDS = {"side": ("left", "right")}
"""Values of mask parameters that are words."""
MASK_TRIES = 16
"""Draws of a mask's parameters; afterwards it is taken not to fit these sizes (documents: equal lengths alone)."""

COMPILED = ("flex", "naive_compiled")
"""Compile each kind of problem for seconds; they take part when asked for by name."""
SLOW_LONG_FLOAT16 = ("naive",)
"""Multiplies matrices in float16 as it is: 23 s a call on a CPU at 16,384 positions. Left out there, in this dtype."""


@dataclass(frozen=True)
class Judged:
    """One implementation on one problem."""

    problem: Problem
    implementation: str
    verdict: Verdict
    reason: str | None = None
    """Why it is not ``passed``."""


def short_problem(seed: int) -> Problem:
    """The short problem of a seed; the same in every process."""
    rng = random.Random(f"short {seed}")
    seqlen_q, num_heads_kv = _size(rng, EDGE_LENGTHS), rng.randint(1, 3)
    head_dim = _size(rng, EDGE_WIDTHS)
    fields: dict[str, Any] = {
        "batch_size": rng.randint(1, 3),
        "num_heads_q": num_heads_kv * rng.choice((1, 2, 4)),
        "num_heads_kv": num_heads_kv,
        "seqlen_q": seqlen_q,
        "seqlen_k": rng.choice((seqlen_q, _size(rng, EDGE_LENGTHS))),
        "head_dim": head_dim,
        "head_dim_v": rng.choice((head_dim, head_dim, head_dim, _size(rng, EDGE_WIDTHS))),
        "dtype": rng.choice(get_args(Dtype)),
        "direction": rng.choice(get_args(Direction)),
        "distribution": rng.choice(get_args(Distribution)),
        "scale": rng.choice(SCALES),
        "seed": seed,
    }
    return Problem(**fields, mask=_draw_mask(rng, Problem(**fields).mask_shape))


def long_problems(seeds: Iterable[int]) -> Iterator[Problem]:
    """Forward problems of one head at ``LONG`` positions, in every dtype."""
    for seed in seeds:
        for mask in ("full", "causal"):
            for dtype in get_args(Dtype):
                yield Problem(seqlen=LONG, num_heads=1, mask=mask, dtype=dtype, seed=seed)


def run_campaign(
    seeds: Iterable[int],
    say: Callable[[str], None],
    *,
    long_seeds: Iterable[int] = (),
    selection: Selection = EVERYTHING,
    device: str = "cpu",
) -> list[Judged]:
    """Judge every implementation on the problem of every seed.

    Args:
        seeds: of short problems; ``SEEDS`` for the whole campaign.
        say: told of each problem as it ends.
        long_seeds: of problems at 16,384 positions; ``LONG_SEEDS`` for the whole campaign.
        selection: which implementations and problems; without a choice, all available ones that do not compile.
        device: device type.

    Raises:
        NothingSelectedError: if the selection leaves no implementation or no problem.
    """
    names = _participants(selection, device)
    problems = [*map(short_problem, seeds), *long_problems(long_seeds)]
    problems = [problem for problem in problems if selection.takes_problem(problem)]
    if not names or not problems:
        raise NothingSelectedError(
            f"the campaign must have an implementation and a problem, got {len(names)} and {len(problems)}. "
            "Change the filters -i, -I, -p or -P."
        )
    judged: list[Judged] = []
    for problem in problems:
        new = judge_all(problem, names, device)
        judged += new
        count = Counter(one.verdict for one in new)
        say(f"{problem.key}: {', '.join(f'{count[verdict]} {verdict}' for verdict in get_args(Verdict))}")
        for one in new:
            if one.verdict == "refused":
                say(f"  refused {one.implementation}: {one.reason}")
    return judged


def judge_all(problem: Problem, names: Sequence[str], device: str = "cpu") -> list[Judged]:
    """The named implementations on one problem, against one reference."""
    slow = device == "cpu" and problem.dtype == "float16" and problem.seqlen_k > SHORT
    logical = make_inputs(problem, device=device)
    exact, naive = reference(problem, logical), naive_yardstick(problem, logical)
    return [
        _judge(problem, implementations.get(name), device, logical, exact, naive)
        for name in names
        if not (slow and name in SLOW_LONG_FLOAT16)
    ]


def summary_rows(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """One row per length class and dtype: problems, verdicts, and how often each implementation passed."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        length = str(LONG) if one.problem.seqlen_k > SHORT else f"<= {SHORT}"
        groups.setdefault((length, one.problem.dtype), []).append(one)
    rows = []
    for (length, dtype), group in sorted(groups.items()):
        count = Counter(one.verdict for one in group)
        passed = Counter({one.implementation: 0 for one in group})
        passed.update(one.implementation for one in group if one.verdict == "passed")
        rows.append(
            {"seqlen": length, "dtype": dtype, "problems": len({one.problem.key for one in group})}
            | {verdict: count[verdict] for verdict in get_args(Verdict)}
            | {"passed_by": " ".join(f"{name}:{number}" for name, number in sorted(passed.items()))}
        )
    return rows


def _participants(selection: Selection, device: str) -> list[str]:
    """Names that the selection takes and that run here."""
    names = []
    for name, member in implementations.items():
        if not selection.takes_implementation(name) or device not in member.devices:
            continue
        if name in COMPILED and not selection.implementation:
            continue
        try:
            member.version()
        except Unavailable:
            continue
        names.append(name)
    return names


def _judge(
    problem: Problem,
    member: Implementation,
    device: str,
    logical: AttentionInputs,
    exact: Reference,
    naive: Reference,
) -> Judged:
    """Errors and structured checks of one implementation: all checks where a certificate would run them all."""
    refused = refusal(member, problem, device)
    if refused is not None:
        return Judged(problem, member.name, "unsupported", refused[1])
    attend = attend_with(member, device)
    due = None if max(problem.seqlen_q, problem.seqlen_k) <= SHORT else affordable_checks(problem)
    try:
        agreement = agree(problem, exact, naive, attend(problem, logical))
        if agreement.passed:
            agreement = agreement.model_copy(update={"checks": run_checks(problem, attend, due)})
    except Unsupported as error:
        return Judged(problem, member.name, "unsupported", str(error))
    except Exception as error:  # noqa: BLE001  # one implementation that fails must not end the campaign
        return Judged(problem, member.name, "refused", f"{type(error).__name__}: {error}")
    if agreement.passed and all(check.passed for check in agreement.checks.values()):
        return Judged(problem, member.name, "passed")
    return Judged(problem, member.name, "refused", checks_reason(agreement))


def _size(rng: random.Random, edges: Sequence[int]) -> int:
    """One of ``edges`` or anything up to their largest, with equal chances."""
    return rng.choice((rng.choice(edges), rng.randint(1, max(edges))))


def _draw_mask(rng: random.Random, shape: MaskShape) -> Mask:
    """One mask, or the intersection of two or three, out of the registry; ``full`` where none of them fits."""
    names = rng.sample(masks.names(), rng.choice((1, 1, 2, 3)))
    parts = [part for part in (_fitting(rng, masks.get(name), shape) for name in names) if part is not None]
    return intersection(*(parts or [parse_mask("full")]))


def _fitting(rng: random.Random, member: type[Mask], shape: MaskShape) -> Mask | None:
    """The mask with random parameters that fit ``shape``; None if none were found."""
    for _ in range(MASK_TRIES):
        try:
            mask = member(**_parameters(rng, member, shape))
            mask.check(shape)
        except MaskError:
            continue
        return mask
    return None


def _parameters(rng: random.Random, member: type[Mask], shape: MaskShape) -> dict[str, Any]:
    """Values by the types of a mask's fields; those with a default keep it half of the time."""
    hints = get_type_hints(member)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(member):  # type: ignore[arg-type]  # members are dataclasses
        kinds = get_args(hints[field.name]) if isinstance(hints[field.name], UnionType) else (hints[field.name],)
        if field.default is not dataclasses.MISSING and rng.random() < 0.5:
            continue
        if int in kinds:
            values[field.name] = rng.randint(1, shape.seqlen_k)
        elif float in kinds:
            values[field.name] = rng.randint(1, 99) / 100
        elif tuple[int, ...] in kinds:
            values[field.name] = tuple(rng.randint(0, shape.seqlen_k) for _ in range(shape.batch_size))
        elif field.name in WORDS:
            values[field.name] = rng.choice(WORDS[field.name])
    return values
