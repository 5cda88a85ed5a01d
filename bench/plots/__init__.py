"""Figures of stored results: the contract of the plot family.

A plot looks at a :class:`Reading` (all runs, their rows, the fits, computed once) and gives matplotlib
figures. It measures nothing and writes nothing; :func:`save` does. Where the data do not vary along its axis,
a plot says what it needs and draws nothing; it never shows an empty chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from bench.analysis import PairedRatio, fastest, paired_ratio, plain_rows
from bench.comparison import machine_names
from bench.memory_law import MemoryCheck, check_memory
from bench.metrics import Row
from bench.plots._saving import PAGE_DPI, Saved, save_tasks, unique_stems, write_print
from bench.record import Record
from bench.registry import Registry
from bench.results import Run
from bench.scaling import TimeFit, fit_time
from bench.standings import sound_measurement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PAGE_DPI",
    "Drawing",
    "Plot",
    "Reading",
    "Saved",
    "draw_all",
    "grouped",
    "plots",
    "register_plot",
    "save",
    "save_all",
]

LADDER = (
    "machine",
    "device",
    "direction",
    "batch_size",
    "num_heads_q",
    "num_heads_kv",
    "dtype",
    "scale",
    "distribution",
    "shape",
    "head_dim",
    "head_dim_v",
    "mask",
)
"""Columns that are constant along a ladder of lengths."""

plots: Registry[Plot] = Registry("plots", "plot", "bench.plots")


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure, ready to be saved."""

    stem: str
    """File name without folder and ending: ASCII letters, digits, dots, dashes and underscores."""
    figure: Figure
    """The figure."""
    caption: str
    """One or two sentences, generated from the data, on what the figure shows."""
    alt: str
    """What someone who cannot see the figure should know: axes, lines and problem."""


@runtime_checkable
class Plot(Protocol):
    """One kind of figure. Register an instance with ``@register_plot`` in a file of its own."""

    name: str
    """Name of the plot and beginning of its files' names."""
    title: str
    """Heading in the report."""
    order: int
    """Place in the report, small numbers first."""
    summary: str
    """One sentence for ``attention-bench list plots``."""

    def needs(self, reading: Reading) -> str | None:
        """What the data lack for this plot, as in ``at least two head widths``; None if it can be drawn."""
        ...

    def draw(self, reading: Reading) -> list[Drawing]:
        """The figures; an empty list exactly if :meth:`needs` names something."""
        ...


def register_plot(cls: type[Plot]) -> type[Plot]:
    """Class decorator: build the plot once and add it to the registry under its ``name``."""
    plots.add(cls.name, cls())
    return cls


@dataclass(frozen=True)
class Reading:
    """What figures and findings look at: the runs, one row per cell, and the fits."""

    runs: Sequence[Run]

    @cached_property
    def rows(self) -> list[Row]:
        """One row per cell with the columns of ``bench.analysis.COLUMNS``, plain Python values, None where
        missing.

        Added are ``machine`` (the same for two runs exactly if their times may share a figure), ``shape``
        (``square``, or the fixed ``Tq``), ``length`` (``Tk``), ``width`` (``64``, or ``192:128`` where v differs) and
        ``sound`` (measured and not flagged as impossible), and ``flag_names``. A cell that a later run on such a
        machine holds again replaces the earlier one.
        """
        machines = machine_names(self.runs)
        impossible = {
            (run.run_id, record.cell_key)
            for run in self.runs
            for record in run.records
            if record.measurement is not None and sound_measurement(record) is None
        }
        rows: dict[tuple[str, str], Row] = {}
        for row in plain_rows(self.runs):
            machine = machines[row["run_id"]]
            rows.pop((machine, row["cell_key"]), None)
            rows[machine, row["cell_key"]] = row | {
                "machine": machine,
                "shape": "square" if row["seqlen_q"] == row["seqlen_k"] else f"Tq={row['seqlen_q']}",
                "length": row["seqlen_k"],
                "width": str(row["head_dim"])
                + (f":{row['head_dim_v']}" if row["head_dim_v"] != row["head_dim"] else ""),
                "sound": row["latency_ms"] is not None and (row["run_id"], row["cell_key"]) not in impossible,
                "flag_names": tuple(flag.name for flag in self.records[row["run_id"], row["cell_key"]].flags),
            }
        return list(rows.values())

    @cached_property
    def records(self) -> dict[tuple[str, str], Record]:
        """The record behind a row, by run and cell key."""
        return {(run.run_id, record.cell_key): record for run in self.runs for record in run.records}

    @cached_property
    def names(self) -> list[str]:
        """Implementations that occur, sorted."""
        return sorted({row["implementation"] for row in self.rows})

    def record(self, row: Row) -> Record:
        """The record that ``row`` was made from."""
        return self.records[row["run_id"], row["cell_key"]]

    def paired(self, first: Row, other: Row) -> PairedRatio | None:
        """Time of ``first`` over that of ``other``, round by round; None where no round timed both."""
        keys = first["run_id"], first["cell_key"], other["cell_key"]
        if first["run_id"] != other["run_id"] or first["problem"] != other["problem"]:
            return None
        if keys not in self._pairs:
            mine, its = self.record(first).measurement, self.record(other).measurement
            self._pairs[keys] = None if mine is None or its is None else paired_ratio(mine, its)
        return self._pairs[keys]

    @cached_property
    def _pairs(self) -> dict[tuple[str, str, str], PairedRatio | None]:
        return {}

    def fastest(self, rows: Sequence[Row]) -> tuple[Row, bool]:
        """The fastest of soundly timed rows of one problem, and whether it clearly is: `bench.analysis.fastest`."""
        medians = {index: float(row["latency_ms"]) for index, row in enumerate(rows)}
        best, clear = fastest(medians, lambda one, other: self.paired(rows[one], rows[other]))
        return rows[best], clear

    def rival(self, rows: Sequence[Row], best: Row) -> Row | None:
        """Whom to name beside the fastest of one problem: the quickest that may be as fast; if all are clearly slower,
        the next one; None if nobody else was timed.
        """
        others = sorted((row for row in rows if row is not best), key=lambda row: float(row["latency_ms"]))
        close = [row for row in others if (pair := self.paired(row, best)) is None or pair.lo <= 1]
        return next(iter(close or others), None)

    @cached_property
    def timed_ladders(self) -> dict[tuple[object, ...], list[Row]]:
        """Soundly timed rows of one implementation on one ladder of at least two lengths."""
        ladders = grouped([row for row in self.rows if row["sound"]], *LADDER, "implementation")
        return {key: rows for key, rows in ladders.items() if len({row["length"] for row in rows}) > 1}

    @cached_property
    def timed_ladder_rows(self) -> list[Row]:
        """All rows of :attr:`timed_ladders`."""
        return [row for rows in self.timed_ladders.values() for row in rows]

    def fit(self, row: Row) -> TimeFit | None:
        """The time fit of the ladder and implementation that ``row`` belongs to; None where there is one
        length only. Strays are left out.
        """
        key = tuple(row[name] for name in (*LADDER, "implementation"))
        if key not in self._fits:
            rungs = self._without_strays(self.timed_ladders.get(key, []))
            measured = {r["length"]: self.record(r).measurement for r in rungs}
            known = {length: m for length, m in measured.items() if m is not None}
            expected = 2 if row["shape"] == "square" else 1  # the pairs of a fixed number of queries grow as T
            self._fits[key] = fit_time(known, expected) if known else None
        return self._fits[key]

    def _without_strays(self, rows: Sequence[Row]) -> list[Row]:
        """Rows that were climbed together: lengths at which fewer took turns than at a shorter and at a longer one were
        measured for something else. Whose call came before decides what a call finds in the caches: alone, naive finds
        its own scores there, and is up to a tenth faster.
        """
        took_turns = [(row["length"], self._company[row["run_id"], row["problem"]]) for row in rows]
        fuller = [[other for other, names in took_turns if own < names] for _, own in took_turns]
        return [
            row
            for row, lengths in zip(rows, fuller, strict=True)
            if not lengths or not min(lengths) < row["length"] < max(lengths)
        ]

    @cached_property
    def _company(self) -> dict[tuple[str, str], frozenset[str]]:
        """By run and problem: who was timed on it, in rounds of turns."""
        timed = [row for row in self.rows if row["latency_ms"] is not None]
        groups = grouped(timed, "run_id", "problem").items()
        return {
            (str(run), str(problem)): frozenset(r["implementation"] for r in rows) for (run, problem), rows in groups
        }

    @cached_property
    def _fits(self) -> dict[tuple[object, ...], TimeFit | None]:
        return {}

    @cached_property
    def memory_checks(self) -> list[MemoryCheck]:
        """Measured peaks against the laws, one per implementation."""
        return check_memory(self.record(row) for row in self.rows)


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[object, ...], list[Row]]:
    """Rows by the values of ``columns``, in the order in which these appear."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in columns), []).append(row)
    return groups


def draw_all(reading: Reading) -> tuple[list[tuple[Plot, list[Drawing]]], dict[str, str]]:
    """Every registered plot's figures, and for the others what they need, by the plot's title."""
    from bench.figure_style import figure_style

    drawn, missing = [], {}
    for plot in sorted((plot for _, plot in plots.items()), key=lambda plot: (plot.order, plot.name)):
        need = plot.needs(reading)
        if need is not None:
            missing[plot.title] = need
            continue
        with figure_style():
            drawn.append((plot, plot.draw(reading)))
    return drawn, missing


def save(drawing: Drawing, folder: Path) -> Path:
    """Write the figure as a PNG for print into ``folder``, which must exist.

    Raises:
        OutputError: if the file cannot be written.
    """
    path = folder / f"{drawing.stem}.png"
    write_print(drawing.figure, path)
    return path


def save_all(drawings: Sequence[Drawing], folder: Path, processes: int | None = None) -> list[Saved]:
    """Write all figures, each for print and for pages, into ``folder``, which must exist.

    Several processes draw at once. A stem that another drawing has as well gets a number.

    Args:
        drawings: in the order of the answer.
        folder: where to.
        processes: None takes one for each core.

    Raises:
        OutputError: if a file cannot be written.
    """
    stems = unique_stems([drawing.stem for drawing in drawings])
    figures = [drawing.figure for drawing in drawings]
    return save_tasks(list(zip(stems, figures, strict=True)), folder, processes)
