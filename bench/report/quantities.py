"""What the charts against sequence length can show: a chart for each kind of quantity, with its conventions."""

from __future__ import annotations

from dataclasses import dataclass

BYTES = (
    "datum.value < 1000 ? format(datum.value, '~r') + ' B' "
    ": replace(format(datum.value, '~s'), /([a-zA-Z])$/, ' $1') + 'B'"
)
"""Labels of a byte axis: ``512 B``, ``4 MB``."""


@dataclass(frozen=True)
class Choice:
    """One quantity that a chart can show."""

    key: str
    """Column of the dataset."""
    title: str
    """In the drop-down and on the axis."""
    band: bool = False
    """Whether it has the interval of the latency."""


@dataclass(frozen=True)
class LineChart:
    """A chart against sequence length."""

    name: str
    title: str
    choices: tuple[Choice, ...]
    ticks: str = ""
    """Vega expression for the labels of its axis; empty for plain numbers."""
    about: str = ""
    """What to know before reading it."""


SPEED = (
    LineChart(
        "latency",
        "Latency",
        (
            Choice("latency_ms", "latency, ms", band=True),
            Choice("latency_host_ms", "clock host, ms"),
            Choice("latency_cuda_event_hot_ms", "clock cuda_event_hot, ms"),
            Choice("latency_cuda_graph_ms", "clock cuda_graph, ms"),
        ),
        about="Median per call; the band is its interval of 95 % or more.",
    ),
    LineChart(
        "tflops",
        "Arithmetic rate",
        (
            Choice("tflops", "TFLOP/s, exact pairs", band=True),
            Choice("tflops_dense", "TFLOP/s, dense", band=True),
            Choice("tflops_halved", "TFLOP/s, halved if causal", band=True),
            Choice("tflops_with_softmax", "TFLOP/s, softmax counted", band=True),
        ),
        about="The same times under the conventions that others publish; only exact pairs counts what was needed.",
    ),
    LineChart(
        "ceiling_share",
        "Share of the measured ceiling",
        (
            Choice("peak_fraction", "share of the matrix-product rate", band=True),
            Choice("roof_fraction", "share of the roofline", band=True),
        ),
        ticks="format(datum.value, '~%')",
        about="Ceilings are matrix products and passes over memory timed on this machine in this run.",
    ),
)
MEMORY = (
    LineChart(
        "memory",
        "Peak memory",
        (
            Choice("peak_bytes", "peak of one call"),
            Choice("workspace_bytes", "peak without the output"),
            Choice("output_bytes", "output"),
            Choice("mask_bytes", "mask tensors"),
            Choice("saved_bytes", "kept for backward"),
            Choice("backward_peak_bytes", "peak of backward"),
            Choice("reserved_bytes", "reserved from the device"),
        ),
        ticks=BYTES,
        about="Exact to the byte, so there is no interval. Inputs and mask tensors are not part of the peak.",
    ),
)
NUMERICS = (
    LineChart(
        "error",
        "Error against float64",
        (
            Choice("out_max_abs", "largest absolute error"),
            Choice("out_share", "largest error over its limit"),
            Choice("out_rmse", "root mean square error"),
            Choice("out_rmse_over_naive", "RMSE over that of naive arithmetic"),
        ),
        ticks="format(datum.value, '~g')",
        about="Of the output, on the same rounded inputs. It is one number for each cell, so there is no interval.",
    ),
)
LINES = (*SPEED, *MEMORY, *NUMERICS)
"""Every chart against sequence length."""
