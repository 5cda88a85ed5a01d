"""The worked examples of ``golden.json`` as tensors and problems, and how far an implementation may be off.

Inputs are small whole numbers, exact in every dtype, so the only errors are those of the arithmetic. In a
dtype with unit roundoff ``u`` the naive arithmetic stores a score twice (product, then scaled), each time off
by ``u * |s|``; a weight follows from a difference of two scores and is rounded once, so it is off by a factor
of at most ``1 + u * (4 * max|s| + 1)``; the sum is rounded once more. Hence :func:`tolerance`.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from members import one_head, problem_of

from bench.implementation import dense_mask
from bench.numerics import UNIT_ROUNDOFF

CASES = {case["name"]: case for case in json.loads(Path(__file__).with_name("golden.json").read_text("utf-8"))["cases"]}
ATTENTION = [name for name, case in CASES.items() if "q" in case["inputs"]]
"""Cases with q, k and v."""
DIGITS = 1e-12
"""The numbers have 13 significant digits, the largest is below 10 or a whole number."""


def numbers(values):
    """A tensor of the numbers in nested lists, where infinities and NaN are strings."""
    nested = [numbers(value) for value in values] if isinstance(values, list) else None
    return torch.tensor(float(values), dtype=torch.float64) if nested is None else torch.stack(nested)


def expected(name, key):
    return numbers(CASES[name]["expected"][key])


def given(name, identity=False):
    """q, k and v of a case; with ``identity`` in the place of v, so that the output is the weights."""
    q, k, v = (one_head(CASES[name]["inputs"][key]) for key in "qkv")
    return q, k, torch.eye(k.shape[2])[None, None] if identity else v


def problem(name, q, k, v, dtype="float32", **fields):
    inputs = CASES[name]["inputs"]
    return problem_of(q, k, v, **({"mask": inputs["mask"], "scale": inputs["scale"], "dtype": dtype} | fields))


def scores(name):
    """Scaled scores in float64."""
    q, k, v = given(name)
    return (q.double() @ k.double().transpose(-1, -2))[0, 0] * problem(name, q, k, v).softmax_scale


def tolerance(name, dtype, largest):
    """Largest error of an output in ``dtype`` where values are at most ``largest``; see the top of the file."""
    keep = dense_mask(problem(name, *given(name)), "cpu")[0, 0]
    return UNIT_ROUNDOFF[dtype] * largest * (4 * float(scores(name)[keep].abs().max()) + 4)


def assert_near(got, wanted, atol):
    torch.testing.assert_close(got.double(), wanted.double(), rtol=0, atol=atol)
