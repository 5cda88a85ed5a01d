"""How far the cell is from the roof: the least time that products and bandwidth of this machine allow."""

from __future__ import annotations

from collections.abc import Iterator

from bench.explanation._cell import Cell, Refusal, Sentence, Support, percent
from bench.explanation._limits import BEATEN, bytes_share, products_share
from bench.units import format_ms, significant

TOPIC = "distance to the roof"


def roof(cell: Cell) -> Iterator[Sentence | Refusal]:
    """The share of the roofline, which of the two roofs it is, and why."""
    time = cell.time
    if time is None:
        yield Refusal(TOPIC, cell.no_time or "")
        return
    if cell.ceilings is None:
        yield Refusal(TOPIC, "the run measured no limits of its machine (header.ceilings is null); `run` does")
        return
    products, moved = products_share(cell, time, cell.ceilings), bytes_share(cell, time, cell.ceilings)
    if isinstance(products, str) or isinstance(moved, str):
        yield from (Refusal(TOPIC, one) for one in (products, moved) if isinstance(one, str))
        return
    nearest = products if products.middle >= moved.middle else moved
    least_ms = nearest.middle * time.median_ms
    intensity = cell.record.flop / cell.record.problem.least_bytes
    # Where both roofs take the same time lies the ridge, in FLOP per byte.
    ridge = intensity * moved.middle / products.middle if products.middle else None
    reached = f"{percent(nearest.middle)} [{percent(nearest.lo)}, {percent(nearest.hi)}]"
    slower = "" if cell.slowed is None else f", at least: it is flagged {cell.slowed}"
    at = " It is at its roof." if nearest.lo >= 1 / BEATEN else ""
    yield Sentence(
        TOPIC,
        f"It reaches {reached} of its roof{slower}: {nearest.text} take {format_ms(least_ms)}, and no call on this "
        f"machine takes less.{at}",
        nearest.support,
    )
    if ridge is None:
        return
    side = "above" if products.middle >= moved.middle else "below"
    which = "products" if side == "above" else "bandwidth"
    yield Sentence(
        TOPIC,
        f"Its roof is that of {which}: {significant(intensity)} FLOP per byte that must be moved is {side} the "
        f"{significant(ridge)} at which both roofs meet here.",
        tuple(
            dict.fromkeys(
                (Support("record", "flop / problem.least_bytes", intensity), *products.support[:2], *moved.support[:2])
            )
        ),
    )
