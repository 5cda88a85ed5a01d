"""Claim 2: stored scores are what attention's memory grows with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, claims
from bench.claims._bytes import STORES_SCORES, Ladder, Law, byte_ladders
from bench.claims._bytes_figure import memory_figure
from bench.claims._growth import cases, problem
from bench.claims._storage import WHOLE_LENGTHS, constants, plain_lengths, several_machines, span
from bench.memory_law import NAIVE, NAIVE_LAW
from bench.metrics import Row
from bench.plots import Reading
from bench.units import format_bytes

NAMED = (NAIVE, *STORES_SCORES, "online_softmax", "sdpa_flash")
GPU_ONLY = ("sdpa_efficient", "triton_flash")
DOUBLED = (1000, 2000)
"""Positions whose float32 score matrix takes 4 MB and 16 MB."""
FLOAT32_BYTES = 4
LEAST_CELLS = 4
"""As many cells must equal the law of naive as lengths decide a polynomial."""


@claims.register("score_memory")
class ScoreMemory:
    """Exact polynomials of bytes: naive's law, lines for what stores no scores, copies of masks told apart."""

    name: ClassVar[str] = "score_memory"
    order: ClassVar[int] = 2
    statement: ClassVar[str] = (
        "Stored scores cost memory that grows as T²: naive's peak is its law to the byte; what works block by block "
        "has no T² term, backward pass and bytes saved for it included, unless it copies a mask tensor."
    )
    rule: ClassVar[str] = (
        "Bytes are exact, so polynomials in T are solved in rational numbers from three lengths and tested at the "
        "others; the bound for a residual is 0 bytes. CONFIRMED if naive has its whole number of score matrices, its "
        "forward pass the law 2·B·H·T²·bytes + output at every length, and if the others lie on a line from T = 1,024 "
        "on, where blocks have their full size, beside one entry per pair for a copied mask; REFUTED if a byte is off; "
        "INCONCLUSIVE below four lengths."
    )

    def needs(self, scope: Scope) -> Needs:
        """The shared ladder; masks and gradients at lengths that are cheap and decide; 1,000 and 2,000 positions."""
        names = NAMED if scope.device == "cpu" else NAMED + GPU_ONLY
        fewer = [name for name in names if not scope.quick or name not in STORES_SCORES]
        masks = ("padding(0.5)",) if scope.quick else ("causal", "padding(0.5)")
        plain = [problem(scope, length) for length in plain_lengths(scope)]
        others = [problem(scope, length, mask=mask) for mask in masks for length in WHOLE_LENGTHS]
        others += [problem(scope, length, direction="fwd_bwd") for length in WHOLE_LENGTHS]
        doubled = [problem(scope, length, num_heads=1, dtype="float32") for length in DOUBLED]
        found = cases(plain, names) + cases(others, fewer) + cases(doubled, (NAIVE,))
        return Needs(tuple(dict.fromkeys(found)))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """All forward cells of naive, each ladder with lengths enough, and the doubled length."""
        reading = hearing.reading
        several = several_machines(reading)
        judged = [_ladder_answer(one, several) for one in byte_ladders(reading)]
        return [*_every_cell(reading), *judged, *_doubled(reading, several)]

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Measured bytes on the curves, residuals beneath."""
        return memory_figure(hearing.reading, answers)


def _every_cell(reading: Reading) -> list[Answer]:
    """Naive's forward pass against its law in every cell there is, of whatever width, mask and dtype."""
    found = []
    for check in reading.memory_checks:
        if not check.theory:
            continue
        rows = [row for row in reading.rows if row["implementation"] == NAIVE and row["direction"] == "fwd"]
        keys = tuple(str(row["cell_key"]) for row in rows if row["peak_bytes"] is not None)
        said = (
            f"{check.equal} of {check.cells} cells equal {NAIVE_LAW}, largest residual {check.residual_bytes:+,} bytes"
        )
        subject = f"{NAIVE}, every forward cell"
        if not check.holds:
            found.append(Answer(subject, "REFUTED", said, f"bytes are off, most at {check.worst}", keys))
        elif check.cells < LEAST_CELLS:
            found.append(Answer(subject, "INCONCLUSIVE", said, f"needs at least {LEAST_CELLS} cells", keys))
        else:
            found.append(Answer(subject, "CONFIRMED", said, "measured bytes are the law in every cell", keys))
    return found


def _ladder_answer(one: Ladder, several: bool) -> Answer:
    subject = f"{one.implementation}, {constants(one.rows[0], several)}"
    keys = tuple(str(row["cell_key"]) for row in one.rows)
    if not one.laws:
        return Answer(subject, "INCONCLUSIVE", f"{len(one.rows)} lengths", one.shortage, keys)
    lengths = [int(row["length"]) for row in one.judged]
    found = f"{'; '.join(law.text for law in one.laws)}; {len(lengths)} lengths, {span(lengths)}{one.shorter_text}"
    wrong = [reason for law in one.laws if (reason := law.objection)]
    if one.law_residual_bytes:
        wrong.append(f"the peak misses {NAIVE_LAW} by {one.law_residual_bytes:+,} bytes")
    if wrong:
        return Answer(subject, "REFUTED", found, "; ".join(wrong), keys)
    if one.gaps:
        return Answer(subject, "INCONCLUSIVE", found, f"measured: {one.gaps}", keys)
    return Answer(subject, "CONFIRMED", found, _expectation(one.laws[0]), keys)


def _expectation(law: Law) -> str:
    """What the peak was held against, in words."""
    if law.at_least:
        return "it stores scores: at least one matrix of them, and all lengths on one polynomial"
    if law.matrices:
        return f"{law.matrices} score matrices as the law says, residual 0 bytes"
    copied = "beside the mask, copied at every call, " if law.expected else ""
    return f"{copied}no bytes grow with T², residual 0 bytes"


def _doubled(reading: Reading, several: bool) -> list[Answer]:
    """What naive's matrices take at 1,000 and at 2,000 positions, where both were measured."""
    at: dict[str, dict[int, Row]] = {}
    for row in reading.rows:
        wanted = row["implementation"] == NAIVE and row["direction"] == "fwd" and row["dtype"] == "float32"
        if wanted and row["seqlen_q"] == row["seqlen_k"] in DOUBLED and row["workspace_bytes"] is not None:
            at.setdefault(constants(row, several), {})[int(row["length"])] = row
    found = []
    for said, rows in at.items():
        if len(rows) < len(DOUBLED):
            continue
        heads = rows[DOUBLED[0]]["batch_size"] * rows[DOUBLED[0]]["num_heads_q"]
        each = [rows[length]["workspace_bytes"] / (2 * heads) for length in DOUBLED]  # two matrices beside the output
        right = each == [FLOAT32_BYTES * length**2 for length in DOUBLED]
        found.append(
            Answer(
                f"{NAIVE}, 1,000 to 2,000 positions, {said}",
                "CONFIRMED" if right else "REFUTED",
                f"each score matrix takes {' and '.join(format_bytes(count) for count in each)}",
                "twice the positions, four times the bytes: 4·T²" if right else "4·T² bytes are 4 MB and 16 MB",
                tuple(str(rows[length]["cell_key"]) for length in DOUBLED),
            )
        )
    return found
