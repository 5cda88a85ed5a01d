"""The verb that shows how attention is computed: trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from bench.cli._shared import REPORTS, app, say

if TYPE_CHECKING:
    from bench.plots import Drawing
    from bench.trace import Trace

DRAWN = {"seqlen": 8, "num_heads": 1, "head_dim": 4}
"""The problem without an example's name, before ``--set``."""


@app.command(name="trace")
def trace_(
    problem: str | None = None,
    *,
    set: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Every intermediate of a small problem, from q, k and v to the output, as numbers and as figures.

    Writes q, k, v, scores, mask, weights, m, l, u, out and more to trace.npz and trace.json, draws them, and lists the
    files on stdout.

    Args:
        problem: A worked example: two_key_row, sharper_row, heatmap_three_tokens, padded_query_loss,
            unscaled_demonstration, causal_three_tokens, causal_three_tokens_changed_query or fourth_future_key_blocked.
            Without a name, inputs are drawn for B1-H1-T8-d4-float32-fwd-full.
        set: Change a field of the problem: seqlen=6, mask=causal, scale=1. A worked example takes mask and scale. May
            be given several times.
        output: Folder of the files; by default one of its own in reports.
    """
    from bench.figure_style import slug
    from bench.plots import save as save_figure
    from bench.problem import Problem
    from bench.trace import save, trace_example, trace_problem

    changes = dict(map(_field, set))
    trace = trace_problem(Problem(**DRAWN | changes)) if problem is None else trace_example(problem, **changes)
    folder = output or REPORTS / slug("trace", trace.title)
    files = save(trace, folder)
    files += [save_figure(drawing, folder) for drawing in _drawings(trace)]
    for path in files:
        print(path)
    sizes = f"{trace.problem.seqlen_q} queries, {trace.problem.seqlen_k} keys, mask {trace.problem.mask.spec}"
    say(f"{trace.title}: {sizes}, scale {trace.problem.softmax_scale:.6g}")
    return 0


def _field(text: str) -> tuple[str, Any]:
    """One field and its one value."""
    from bench.errors import TraceError
    from bench.sweep import parse_override

    name, value = parse_override(text)
    values = value if isinstance(value, list) else [value]
    if len(values) != 1 or isinstance(values[0], dict):
        raise TraceError(f"--set {name} of a trace must be one value, got {text!r}. Trace one problem at a time.")
    return name, values[0]


def _drawings(trace: Trace) -> list[Drawing]:
    """Three figures for each batch item and head."""
    from bench.attention_map import Head, draw_contributions, draw_steps, draw_weights

    drawings = []
    places = [(b, h) for b in range(trace.problem.batch_size) for h in range(trace.problem.num_heads_q)]
    for batch, number in places:
        suffix, title = (f"-b{batch}-h{number}", f"{trace.title}, item {batch}, head {number}")
        if len(places) == 1:
            suffix, title = "", trace.title
        head = Head(
            title=title,
            tensors=trace.head(batch, number),
            query_tokens=trace.query_tokens,
            key_tokens=trace.key_tokens,
        )
        drawings += [
            draw_steps(head, stem=f"steps{suffix}"),
            draw_weights([head], stem=f"weights{suffix}"),
            draw_contributions(head, stem=f"contributions{suffix}"),
        ]
    return drawings
