"""Claim 5: softmax in blocks with running sums is softmax, up to rounding; softmax of each block alone is not.

The limit on the error of the running form is derived, not fitted::

    limit = 4 * e_full + max|v| * (u + 4 * w * sqrt(blocks))

``e_full`` is the error of softmax over all keys in the same dtypes, ``u`` the unit roundoff of the dtype (the result is
rounded once) and ``w`` that of the sums. Each block rounds a sum three times, once for ``exp(m - m')``, once for the
product with it and once for the addition, by at most ``w`` each and with independent signs: standard deviation
``w * sqrt(blocks)``, of which four are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, claims
from bench.figure_style import grid, headline, length_axis, line_entry, log_axis, shared_legend, slug, styles
from bench.plots import grouped
from bench.units import significant

Row = Mapping[str, Any]

SOURCE = "blockwise_softmax"
FAR = 10
"""Blocks normalised alone have to be off by this many limits to be called wrong instead of rounded."""
LEAST_ORDERS = 3
_TITLES = {
    "CONFIRMED": "Online softmax is full softmax up to rounding, at every block size and order",
    "REFUTED": "REFUTED: online softmax is off by more than rounding, or blocks normalised alone are not",
    "INCONCLUSIVE": "Online softmax beside full softmax: too few rows for a verdict",
}
_ALONE: dict[str, Any] = {"color": "#000000", "marker": "x", "linestyle": "-"}
_LIMIT: dict[str, Any] = {"color": "#999999", "linestyle": "-", "linewidth": 1.2}
_WHOLE = (0, (5, 1.5))
_ROUNDING: dict[str, Any] = {"color": "#000000", "linestyle": (0, (1, 1)), "linewidth": 1.0}


@claims.register("online_equals_full")
class OnlineEqualsFull:
    """One subject for each arithmetic and dtype."""

    name: ClassVar[str] = "online_equals_full"
    order: ClassVar[int] = 5
    statement: ClassVar[str] = (
        "Online softmax equals full softmax up to rounding, for any block size and block order; blocks normalised "
        "independently do not."
    )
    rule: ClassVar[str] = (
        "CONFIRMED if in every row the online error is at most 4 times that of full softmax in the same dtype plus "
        "the rounding of one result and of the sums of its blocks, and blocks normalised alone are off by more than "
        f"{FAR} such limits wherever there is more than one block; REFUTED otherwise; INCONCLUSIVE without single "
        f"keys, a block size that does not divide the length, or {LEAST_ORDERS} orders."
    )

    def needs(self, scope: Scope) -> Needs:
        """One demonstration."""
        return Needs(demonstrations=(SOURCE,))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """Each arithmetic and dtype by its worst row."""
        groups = grouped(hearing.demonstration(SOURCE), "arithmetic", "dtype")
        return [_answer(f"{arithmetic}, {dtype}", rows) for (arithmetic, dtype), rows in groups.items()]

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Error by block size, a panel for each dtype."""
        every = [
            row for row in hearing.demonstration(SOURCE) if None not in (row["online_max_abs"], row["full_max_abs"])
        ]
        rows = [row for row in every if row["inputs"] == "random"]
        return [_figure(rows, every, answers)] if rows else []


def limit(row: Row) -> float:
    """Largest error of the running form that rounding explains; see the top of the file."""
    sums = 4 * row["roundoff_sums"] * sqrt(row["blocks"])
    return float(4 * row["full_max_abs"] + row["largest_v"] * (row["roundoff"] + sums))


def _answer(subject: str, rows: Sequence[Row]) -> Answer:
    broken = next((row for row in rows if _broken(row)), None)
    if broken is not None:
        return Answer(subject, "REFUTED", "infinities or NaN", f"seen with {_case(broken)}", (SOURCE,))
    worst = max(rows, key=lambda row: row["online_max_abs"] / limit(row))
    share = worst["online_max_abs"] / limit(worst)
    apart = [row for row in rows if row["blocks"] > 1]
    nearest = min(apart, key=lambda row: row["independent_max_abs"] / limit(row), default=None)
    found = (
        f"off by {_range(rows, 'online_max_abs')}, full softmax by {_range(rows, 'full_max_abs')} ({len(rows)} rows)"
    )
    if apart:
        found += f"; blocks normalised alone by {_range(apart, 'independent_max_abs')}"
    if share > 1:
        text = f"off by {significant(worst['online_max_abs'])} with {_case(worst)}, the limit is "
        return Answer(subject, "REFUTED", found, text + significant(limit(worst)), (SOURCE,))
    if nearest is not None and nearest["independent_max_abs"] <= FAR * limit(nearest):
        text = f"blocks normalised alone are off by {significant(nearest['independent_max_abs'])} with "
        text += f"{_case(nearest)}, within {FAR} times what rounding explains ({significant(limit(nearest))})"
        return Answer(subject, "REFUTED", found, text, (SOURCE,))
    missing = _missing(rows)
    if missing:
        return Answer(subject, "INCONCLUSIVE", found, f"the rows lack {missing}", (SOURCE,))
    text = f"at most {significant(share)} of what rounding explains ({_case(worst)})"
    if nearest is not None:
        times = significant(nearest["independent_max_abs"] / limit(nearest))
        text += f"; blocks normalised alone are off by at least {times} such limits"
    return Answer(subject, "CONFIRMED", found, text, (SOURCE,))


def _broken(row: Row) -> bool:
    """Whether a result has infinities or NaN."""
    return None in (row["online_max_abs"], row["full_max_abs"])


def _missing(rows: Sequence[Row]) -> str:
    """What the rows would have to hold before they can confirm anything; empty if they do."""
    several = [row for row in rows if row["blocks"] > 1]
    lacks = {
        "blocks of a single key": not any(row["block_size"] == 1 for row in several),
        "a block size that does not divide the length": not any(row["seqlen_k"] % row["block_size"] for row in several),
        f"{LEAST_ORDERS} orders of blocks": len({row["order"] for row in several}) < LEAST_ORDERS,
    }
    return ", ".join(what for what, lack in lacks.items() if lack)


def _case(row: Row) -> str:
    size = row["block_size"]
    return f"{row['inputs']}, blocks of {size} {'key' if size == 1 else 'keys'}, {row['order']}"


def _range(rows: Sequence[Row], column: str) -> str:
    """Least and largest of a column."""
    values = [row[column] for row in rows]
    low, high = significant(min(values), 2), significant(max(values), 2)
    return low if low == high else f"{low} to {high}"


def _figure(rows: Sequence[Row], every: Sequence[Row], answers: Sequence[Answer]) -> Drawing:
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    looks = _looks(rows)
    figure, axes = grid(1, len(dtypes), width=4.0, height=3.6)
    for dtype, one in zip(dtypes, axes[0], strict=True):
        _panel(one, [row for row in rows if row["dtype"] == dtype], looks)
        one.set_title(dtype, fontweight="bold")
    shared_legend(figure, _entries(looks))
    apart = [row for row in every if row["blocks"] > 1]
    lost = [row for row in apart if row["inputs"] == "random"]
    found = _TITLES[next((v for v in ("REFUTED", "INCONCLUSIVE") if v in {a.verdict for a in answers}), "CONFIRMED")]
    most = max((row["independent_max_abs"] for row in lost), default=None)
    headline(figure, found, f"Blocks normalised alone are off by up to {significant(most)}" if most else "")
    example = max((row["independent_max_abs"] for row in apart if row["inputs"] != "random"), default=None)
    return Drawing(
        stem=slug("online-equals-full"),
        figure=figure,
        caption=f"Largest error against float64 over {rows[0]['seqlen_k']} keys whose scores have a standard deviation "
        "of 3, by block size; bars span the orders of the blocks. Dashed: softmax over all keys at once. Blocks "
        "normalised alone are averaged by their numbers of keys, in float64, so that none of their error is rounding"
        + (f"; in the worked example of scores 0 and 2 they are off by {significant(example)}." if example else "."),
        alt=f"Error against block size, both logarithmic, one panel for each of {', '.join(dtypes)}: {found}. "
        + " ".join(f"{answer.subject}: {answer.found}." for answer in answers),
    )


def _looks(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Colour and marker of each arithmetic; the registered ones look as everywhere."""
    names = [row["arithmetic"] for row in rows if row["arithmetic"] != "plain"]
    looks = {name: {"color": style.color, "marker": style.marker} for name, style in styles(names).items()}
    return {"plain": {"color": "#009E73", "marker": "^"}} | looks


def _panel(axes: Any, rows: Sequence[Row], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Errors of one dtype; a slight shift keeps the kinds of arithmetic apart."""
    lost = sorted((row["block_size"], row["independent_max_abs"]) for row in rows if row["blocks"] > 1)
    apart = dict(lost)  # of several errors at one size the largest, which comes last
    allowed = {row["block_size"]: limit(row) for row in sorted(rows, key=limit)}
    axes.plot(list(apart), list(apart.values()), **_ALONE)
    axes.plot(sorted(allowed), [allowed[size] for size in sorted(allowed)], **_LIMIT)
    for shift, (name, look) in enumerate(looks.items()):
        own = [row for row in rows if row["arithmetic"] == name]
        spans = {size[0]: [r["online_max_abs"] for r in some] for size, some in grouped(own, "block_size").items()}
        places = [float(str(size)) * 1.12 ** (shift - 0.5) for size in spans]
        highest = [max(span) for span in spans.values()]
        below = [max(span) - min(span) for span in spans.values()]
        axes.errorbar(places, highest, yerr=[below, [0.0] * len(below)], linestyle="none", markersize=4.5, **look)
        if own:
            axes.axhline(own[0]["full_max_abs"], color=look["color"], linestyle=_WHOLE, linewidth=1.2)
    rounding = rows[0]["roundoff"] * max(row["largest_v"] for row in rows)
    axes.axhline(rounding, **_ROUNDING)
    length_axis(axes, [row["block_size"] for row in rows], "keys in a block")
    errors = [row[name] for row in rows for name in ("online_max_abs", "full_max_abs")]
    log_axis(axes, "largest error", [*errors, rounding, *apart.values(), *allowed.values()])


def _entries(looks: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    entries = [line_entry("blocks normalised alone", **_ALONE)]
    for name, look in looks.items():
        said = "plain arithmetic" if name == "plain" else name
        entries.append(line_entry(f"online: {said}", linestyle="none", **look))
        entries.append(line_entry(f"all keys at once, for {said}", color=look["color"], linestyle=_WHOLE))
    return [
        *entries,
        line_entry("limit: what rounding explains", **_LIMIT),
        line_entry("one rounding of the largest value", **_ROUNDING),
    ]
