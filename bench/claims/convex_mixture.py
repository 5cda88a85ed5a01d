"""Claim 11: weights are a convex mixture, and a row that may see nothing has none: its answer is a policy.

The limits are the rounding that the rows state (``bench/demonstrations/convexity.py`` derives it): ``limit`` for a sum
of weights, ``limit * max|v|`` for an output and the range of the values that it may see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from bench.claims import Answer, Drawing, Hearing, Needs, Scope, claims
from bench.figure_style import grid, headline, line_entry, printable, shared_legend, slug
from bench.plots import grouped
from bench.units import significant

Row = Mapping[str, Any]

MIXTURES, EMPTY = "convexity", "empty_rows"
LEAST_CALLS = 5
"""Other calls that have to be asked before anything is said of them."""
OTHERS = "an empty row elsewhere"
_COLOURS = {"float32": "#0072B2", "float16": "#D55E00", "bfloat16": "#009E73"}
_MARKS = {"sums of weights": "o", "outputs beyond their values": "s"}
_SHADES = {"NaN": "#f6d5cc", "0": "#d5eadf", "1": "#f3e7c4"}


@claims.register("convex_mixture")
class ConvexMixture:
    """Each implementation's weights, its answer to an empty row, and what other calls answer to one."""

    name: ClassVar[str] = "convex_mixture"
    order: ClassVar[int] = 11
    statement: ClassVar[str] = (
        "Attention weights are a convex mixture: none is negative, a row sums to one and outputs stay between the "
        "values they may see. A row that may see nothing has no such weights: out 0 and lse -inf are a declared policy."
    )
    rule: ClassVar[str] = (
        "CONFIRMED if no weight is negative, hidden keys have weights of exactly 0, sums and outputs hold within the "
        "rounding stated in the rows, registered implementations answer an empty row by their policy, and nobody else "
        "answers it by weights that sum to anything but 0 or NaN; REFUTED otherwise; INCONCLUSIVE without both a full "
        f"and another mask, or with fewer than {LEAST_CALLS} other calls."
    )

    def needs(self, scope: Scope) -> Needs:
        """Two demonstrations."""
        return Needs(demonstrations=(MIXTURES, EMPTY))

    def judge(self, hearing: Hearing) -> list[Answer]:
        """One subject for each implementation and question."""
        mixtures = grouped(hearing.demonstration(MIXTURES), "who")
        empty = grouped(hearing.demonstration(EMPTY), "registered", "who")
        answers = [_weights(str(who), rows) for (who,), rows in mixtures.items()]
        answers += [_policy(str(who), rows) for (registered, who), rows in empty.items() if registered]
        others = [row for (registered, _), rows in empty.items() if not registered for row in rows]
        return [*answers, _elsewhere(others)] if others else answers

    def draw(self, hearing: Hearing, answers: Sequence[Answer]) -> list[Drawing]:
        """Shares of the limits, and the table of answers to an empty row."""
        mixtures, empty = hearing.demonstration(MIXTURES), hearing.demonstration(EMPTY)
        return [_figure(mixtures, empty, answers)] if mixtures and empty else []


def _shares(row: Row) -> dict[str, float]:
    """Errors of sums and of outputs as shares of what rounding explains."""
    sums, outside = row["row_sum_error"] / row["limit"], row["hull_excess"] / (row["limit"] * row["largest_v"])
    return dict(zip(_MARKS, (sums, outside), strict=True))


def _weights(who: str, rows: Sequence[Row]) -> Answer:
    """Sign, sum and hull of one implementation."""
    subject, tried = f"{who}, weights", [row for row in rows if row["reason"] is None]
    if not tried:
        return Answer(subject, "INCONCLUSIVE", "refuses every problem", rows[0]["reason"], (MIXTURES,))
    found = "; ".join(_extent(dtype, some) for (dtype,), some in grouped(tried, "dtype").items())
    fault = next((text for row in tried if (text := _fault(row))), None)
    if fault is not None:
        return Answer(subject, "REFUTED", found, fault, (MIXTURES,))
    masks = {row["mask"] for row in tried}
    if "full" not in masks or len(masks) < 2:
        return Answer(subject, "INCONCLUSIVE", found, "needs a full mask and another one", (MIXTURES,))
    share, row, what = max(((s, row, what) for row in tried for what, s in _shares(row).items()), key=lambda x: x[0])
    text = f"at most {significant(share)} of what rounding explains ({what}, {row['dtype']}, {row['mask']})"
    return Answer(subject, "CONFIRMED", found, f"no weight below 0, none for hidden keys; {text}", (MIXTURES,))


def _extent(dtype: object, rows: Sequence[Row]) -> str:
    """Largest errors in one dtype."""
    finite = [row for row in rows if not row["nonfinite"]]
    if not finite:
        return f"{dtype}: infinities or NaN"
    sums, outside = (significant(max(row[name] for row in finite), 2) for name in ("row_sum_error", "hull_excess"))
    return f"{dtype}: sums within {sums} of 1, outputs at most {outside} beyond their values"


def _fault(row: Row) -> str | None:
    """What is wrong with a row; None if nothing is."""
    where = f"{row['dtype']}, {row['mask']}"
    if row["nonfinite"]:
        return f"{row['nonfinite']} entries are infinite or NaN ({where})"
    if row["least_weight"] < 0:
        return f"a weight is {significant(row['least_weight'])} ({where})"
    if row["hidden_weight"] != 0:
        return f"a hidden key has the weight {significant(row['hidden_weight'])} ({where})"
    what, share = max(_shares(row).items(), key=lambda item: item[1])
    return f"{what} are off by {significant(share)} times what rounding explains ({where})" if share > 1 else None


def _policy(who: str, rows: Sequence[Row]) -> Answer:
    """Whether a registered implementation gives out 0 and, if it gives any, lse -inf."""
    subject, tried = f"{who}, empty row", [row for row in rows if row["reason"] is None]
    if not tried:
        return Answer(subject, "INCONCLUSIVE", "refuses every problem", rows[0]["reason"], (EMPTY,))
    found = "; ".join(
        f"out {out}, lse {lse} ({', '.join(row['dtype'] for row in some)})"
        for (out, lse), some in grouped(tried, "weight_sum", "lse").items()
    )
    wrong = [row for row in tried if row["weight_sum"] != "0" or row["lse"] not in ("-inf", "not returned")]
    if wrong:
        text = f"the declared policy is out 0, lse -inf; {wrong[0]['dtype']} differs"
        return Answer(subject, "REFUTED", found, text, (EMPTY,))
    return Answer(subject, "CONFIRMED", found, "as declared: out 0, and lse -inf where it is returned", (EMPTY,))


def _elsewhere(rows: Sequence[Row]) -> Answer:
    """Whether any call makes weights out of nothing."""
    asked = [row for row in rows if row["seen"] == "nothing"]
    found = "; ".join(_names(answer, some) for (answer,), some in sorted(grouped(asked, "weight_sum").items(), key=str))
    made_up = [row for row in asked if row["weight_sum"] not in ("0", "NaN")]
    if made_up:
        text = f"{made_up[0]['who']} gives weights that sum to {made_up[0]['weight_sum']}"
        return Answer(OTHERS, "REFUTED", found, text, (EMPTY,))
    if len(asked) < LEAST_CALLS:
        return Answer(OTHERS, "INCONCLUSIVE", found, f"{len(asked)} calls were asked, not {LEAST_CALLS}", (EMPTY,))
    full = [row for row in rows if row["seen"] != "nothing"]
    text = f"none of {len(asked)} calls makes a distribution of nothing"
    if full:
        text += f"; no empty row to any: {_names(full[0]['weight_sum'], full)}"
    return Answer(OTHERS, "CONFIRMED", found, text, (EMPTY,))


def _names(answer: object, rows: Sequence[Row]) -> str:
    return f"weights sum to {answer}: {', '.join(row['who'] for row in rows)}"


def _figure(mixtures: Sequence[Row], empty: Sequence[Row], answers: Sequence[Answer]) -> Drawing:
    figure, ((left, right),) = grid(1, 2, width=6.0, height=5.0)
    finite = [row for row in mixtures if row["reason"] is None and not row["nonfinite"]]
    _share_panel(left, finite)
    cells = list(_table(empty))
    _table_panel(right, cells)
    verdicts = [answer.verdict for answer in answers]
    title = {
        "CONFIRMED": "Weights are convex mixtures within rounding; a row that sees nothing has none",
        "REFUTED": "REFUTED: some weights are no convex mixture, or some empty row breaks its policy",
        "INCONCLUSIVE": "Weights as convex mixtures: too few rows for a verdict",
    }[next((v for v in ("REFUTED", "INCONCLUSIVE") if v in verdicts), "CONFIRMED")]
    answered = Counter(answer for _, seen, answer, _ in cells if seen == "nothing")
    said = " and ".join(f"{answer} in {count}" for answer, count in sorted(answered.items()))
    headline(figure, title, f"Asked for one all the same, {answered.total()} calls answer with sums of {said}")
    dtypes = dict.fromkeys(row["dtype"] for row in finite)
    shared_legend(
        figure,
        [line_entry(dtype, color=_COLOURS.get(dtype, "#000000"), linewidth=5) for dtype in dtypes]
        + [line_entry(what, marker=m, color="#555555", linestyle="none") for what, m in _MARKS.items()],
    )
    return Drawing(
        stem=slug("convex-mixture"),
        figure=figure,
        caption="Left: largest error over all masks as a share of the rounding that is derived for it; above 1 the "
        "weights are no convex mixture. Weights were read off with the unit matrix as values: none is negative or "
        "belongs to a hidden key. Right: the sum of the weights that each call gives a query that may see no key; "
        "where the smallest finite number stands in for minus infinity, softmax sees all keys alike.",
        alt=f"{title}. Left: shares of the limit by implementation and dtype. Right, a table: "
        + "; ".join(f"{who}: {answer}" + (f", lse {lse}" if lse else "") for who, _, answer, lse in cells)
        + ".",
    )


def _share_panel(axes: Any, rows: Sequence[Row]) -> None:
    """Shares of the limit by implementation; dtypes side by side."""
    names = list(dict.fromkeys(row["who"] for row in rows))
    for (who, dtype), some in grouped(rows, "who", "dtype").items():
        places = list(_COLOURS)
        shift = 0.22 * ((places.index(str(dtype)) if dtype in places else 0) - 1)
        for what, marker in _MARKS.items():
            share = max(_shares(row)[what] for row in some)
            place = names.index(str(who)) + shift
            axes.plot([place], [share], marker=marker, color=_COLOURS.get(str(dtype), "#000000"), linestyle="none")
    axes.axhline(1.0, color="#000000", linestyle=(0, (5, 1.5)), linewidth=1.2)
    axes.set_ylim(bottom=-0.04)
    axes.set_xticks(range(len(names)), [printable(name, 18) for name in names])
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylabel("largest error / what rounding explains")
    axes.set_title("Sums and hulls", fontweight="bold")


def _table(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, str]]:
    """Who, what is seen, the sum of weights and lse; dtypes with one answer are one line, sentinels come last."""
    some = sorted(rows, key=lambda row: (row["seen"] != "nothing", not row["registered"]))
    for (who, seen), group in grouped(some, "who", "seen").items():
        answers = dict.fromkeys(row["weight_sum"] or "refused" for row in group)
        lse = dict.fromkeys(str(row.get("lse") or "") for row in group)
        yield str(who), str(seen), ", ".join(answers), ", ".join(filter(None, lse))


def _table_panel(axes: Any, cells: Sequence[tuple[str, str, str, str]]) -> None:
    axes.axis("off")
    axes.set_title("A row that may see nothing", fontweight="bold")
    table = axes.table(
        cellText=[(f" {printable(who, 44).strip()}", *rest) for who, *rest in cells],
        cellColours=[("white", "white", _SHADES.get(answer, "#f6d5cc"), "white") for _, _, answer, _ in cells],
        colLabels=("asked", "sees", "weights sum to", "lse"),
        colWidths=(0.52, 0.14, 0.18, 0.16),
        cellLoc="left",
        colLoc="left",
        bbox=(0.0, 0.0, 1.0, 1.0),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for cell in table.get_celld().values():
        cell.PAD = 0.03
