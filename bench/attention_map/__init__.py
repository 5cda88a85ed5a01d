"""Pictures of attention itself, from plain NumPy arrays: weights, contributions, steps, flow and masks.

They show numbers and explain nothing: a weight is the share in which a value vector is taken, not how much that
vector matters. Every picture of weights says so (:data:`CAUTION`). A blocked pair is hatched and never shown as 0,
since it has no weight.
"""

from __future__ import annotations

from bench.attention_map._contributions import draw_contributions
from bench.attention_map._flow import draw_flow
from bench.attention_map._head import CAUTION, Head
from bench.attention_map._masks import MaskPanel, draw_masks, mask_panels
from bench.attention_map._scaling import draw_scaling
from bench.attention_map._steps import draw_steps
from bench.attention_map._weights import draw_weights

__all__ = [
    "CAUTION",
    "Head",
    "MaskPanel",
    "draw_contributions",
    "draw_flow",
    "draw_masks",
    "draw_scaling",
    "draw_steps",
    "draw_weights",
    "mask_panels",
]
