"""Reading a problem back from its key, whole or in part: ``T2048``, ``H8-T4096-d128-bfloat16-fwd_bwd-causal``."""

from __future__ import annotations

import re
from typing import Any

from bench.errors import ProblemError
from bench.problem import Problem

_PAIR = r"\d+(?::\d+)?"
_NUMBER = r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)"
_KEY = re.compile(
    rf"(?:B(?P<batch_size>\d+)-)?(?:H(?P<heads>{_PAIR})-)?T(?P<lengths>{_PAIR})(?:-d(?P<widths>{_PAIR}))?"
    r"(?:-(?P<dtype>float32|float16|bfloat16))?(?:-(?P<direction>fwd_bwd|fwd|bwd))?"
    r"(?:-(?!scale|seed)(?P<mask>[a-z].*?))?"
    rf"(?:-scale(?P<scale>{_NUMBER}))?"
    r"(?:-(?P<distribution>normal|uniform|outlier|peaked|padded_dout_zero))?(?:-seed(?P<seed>\d+))?"
)
_PAIRS = {
    "heads": ("num_heads_q", "num_heads_kv"),
    "lengths": ("seqlen_q", "seqlen_k"),
    "widths": ("head_dim", "head_dim_v"),
}
_DISTRIBUTIONS = ("normal", "uniform", "outlier", "peaked", "padded_dout_zero")


def parse_problem(text: str) -> Problem:
    """The problem of a key such as a table shows it; what is left out takes its default, only the length must be there.

    Raises:
        ProblemError: if it is no key, or its parts do not fit together.
        UsageError: if its mask cannot be read, or has no known name.
    """
    found = _KEY.fullmatch(text.replace(" ", ""))
    if found is None:
        raise ProblemError(
            f"problem must be a key such as T2048 or B1-H4-T2048-d64-float32-fwd-causal, got {text!r}. "
            "Copy one from a table, or give the length alone."
        )
    parts = {name: value for name, value in found.groupdict().items() if value is not None}
    fields: dict[str, Any] = {}
    for name, value in parts.items():
        if name in _PAIRS:
            first, _, other = value.partition(":")
            fields |= dict(zip(_PAIRS[name], (int(first), int(other or first)), strict=True))
        elif name == "mask" and value in _DISTRIBUTIONS:
            fields["distribution"] = value
        else:
            fields[name] = {"batch_size": int, "seed": int, "scale": float}.get(name, str)(value)
    return Problem(**fields)
