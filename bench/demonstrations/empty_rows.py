"""What a query gets that may see no key: softmax over nothing is no distribution, so every answer is a policy.

Each row names ``who`` was asked, with ``seen`` (``nothing``, or ``all keys`` where the smallest finite number stands in
for minus infinity, so that softmax sees all keys alike) and ``weight_sum``, the sum of the weights as text: ``NaN``,
``0`` or, for a mixture of values, ``1``. Rows of registered implementations (``registered``), one for each dtype, also
have ``lse``, the log-sum-exp as text or ``not returned``, and ``reason`` where the problem is refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.checks import Attend
from bench.demonstrations import Rows, demonstrations
from bench.demonstrations._members import members, one_thread
from bench.errors import Unsupported
from bench.inputs import make_inputs
from bench.problem import Problem

if TYPE_CHECKING:
    import torch
    from torch.nn.attention import SDPBackend

Ask = Callable[[], "torch.Tensor"]

DTYPES = ("float32", "float16", "bfloat16")
KEYS, WIDTH = 4, 8
NOTHING, ALL_KEYS = "nothing", "all keys"


@demonstrations.register("empty_rows")
@one_thread()
def empty_rows(quick: bool) -> Rows:
    """The answers of registered implementations and of other calls."""
    rows = [_registered(name, attend, dtype) for name, attend in members().items() for dtype in DTYPES]
    asked = [*_formulas(), *_attention(), *_layers()]
    if not quick:  # importing it takes seconds
        asked.append(("FlexAttention (not compiled)", NOTHING, _flex))
    return rows + [_asked(who, seen, ask) for who, seen, ask in asked]


def _registered(name: str, attend: Attend, dtype: str) -> dict[str, Any]:
    """The first of three queries to two keys, aligned at the end, sees nothing."""
    row = {"who": name, "registered": True, "dtype": dtype, "seen": NOTHING, "reason": None}
    problem = Problem(num_heads=1, seqlen_q=3, seqlen_k=2, head_dim=WIDTH, dtype=dtype, mask="causal")
    inputs = make_inputs(problem)
    inputs.v.fill_(1.0)
    try:
        got = attend(problem, inputs)
    except Unsupported as refusal:
        return row | {"weight_sum": None, "lse": None, "reason": str(refusal)}
    lse = f"{float(got['lse'][0, 0, 0]):g}" if "lse" in got else "not returned"
    return row | {"weight_sum": _said(got["out"][0, 0, 0]), "lse": lse}


def _asked(who: str, seen: str, ask: Ask) -> dict[str, Any]:
    """Ask one library; values are 1, so that outputs are sums of weights."""
    import numpy as np

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of NaN, and of FlexAttention that is not compiled: both are asked for
        sums = ask()
    return {
        "who": who,
        "registered": False,
        "dtype": "float32",
        "seen": seen,
        "reason": None,
        "weight_sum": _said(sums),
    }


def _said(sums: torch.Tensor) -> str:
    """Sums of weights as text, since a results file knows no NaN."""
    values = (sums.double() + 0.0).flatten().tolist()  # turns -0 into 0
    return ", ".join(sorted({"NaN" if math.isnan(value) else f"{value:.4g}" for value in values}))


def _scores(fill: float) -> torch.Tensor:
    """Masked scores of one query, or a mask to be added to its scores."""
    import torch

    return torch.full((1, KEYS), fill)


def _formulas() -> Iterator[tuple[str, str, Ask]]:
    """Softmax as it is written down."""
    import numpy as np
    import torch
    from scipy.special import softmax

    def unshifted() -> torch.Tensor:
        terms = _scores(-math.inf).exp()
        return (terms / terms.sum()).sum()

    def shifted() -> torch.Tensor:
        scores = _scores(-math.inf).numpy()
        terms = np.exp(scores - scores.max())
        return torch.tensor((terms / terms.sum()).sum())

    yield "exp(s) over its sum (torch)", NOTHING, unshifted
    yield "exp(s - max) over its sum (numpy)", NOTHING, shifted
    yield "torch.softmax", NOTHING, lambda: torch.softmax(_scores(-math.inf), dim=-1).sum()
    yield "torch.masked.softmax", NOTHING, lambda: torch.masked.softmax(_scores(0.0), -1, mask=_hidden()).sum()
    yield "scipy.special.softmax", NOTHING, lambda: torch.tensor(softmax(_scores(-math.inf).numpy()).sum())


def _hidden() -> torch.Tensor:
    """A boolean mask that lets nothing be seen: True = attend."""
    return _scores(0.0).bool()


def _attention() -> Iterator[tuple[str, str, Ask]]:
    """``scaled_dot_product_attention`` by kernel and form of the mask."""
    import torch
    from torch.nn.attention import SDPBackend

    kernels = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}
    smallest = torch.finfo(torch.float32).min
    masks = {
        "boolean mask": (NOTHING, _hidden()),
        "mask of -inf": (NOTHING, _scores(-math.inf)),
        "mask of the smallest float32": (ALL_KEYS, _scores(smallest)),
    }
    for kernel, backend in kernels.items():
        for form, (seen, mask) in masks.items():
            yield f"SDPA {kernel} ({form})", seen, partial(_sdpa, mask, backend)
    yield "SDPA as it chooses (boolean mask)", NOTHING, lambda: _sdpa(_hidden(), *kernels.values())


def _tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v of one query and :data:`KEYS` keys; values are 1."""
    import torch

    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, length, WIDTH, generator=generator) for length in (1, KEYS))
    return q, k, torch.ones_like(k)


def _sdpa(mask: torch.Tensor, *backends: SDPBackend) -> torch.Tensor:
    import torch.nn.functional as F  # noqa: N812  # its usual name
    from torch.nn.attention import sdpa_kernel

    with sdpa_kernel(list(backends)):
        return F.scaled_dot_product_attention(*_tensors(), attn_mask=mask)


def _layers() -> Iterator[tuple[str, str, Ask]]:
    """``nn.MultiheadAttention`` with all keys blocked, whose answer depends on whether it returns weights."""
    for need_weights in (True, False):
        who = f"nn.MultiheadAttention (need_weights={need_weights})"
        yield who, NOTHING, partial(_layer, need_weights)


def _layer(need_weights: bool) -> torch.Tensor:
    """Its output where all projections are the identity."""
    import torch

    layer = torch.nn.MultiheadAttention(WIDTH, 1, bias=False, batch_first=True).eval()
    q, k, v = (tensor[0] for tensor in _tensors())
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(WIDTH).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(WIDTH))
        blocked = torch.ones(1, KEYS, dtype=torch.bool)  # here True = blocked
        out: torch.Tensor = layer(q, k, v, key_padding_mask=blocked, need_weights=need_weights)[0]
    return out


def _flex() -> torch.Tensor:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q_idx, kv_idx: kv_idx < 0, None, None, 1, KEYS, device="cpu")
    out: torch.Tensor = flex_attention(*_tensors(), block_mask=mask)
    return out
