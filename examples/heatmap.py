"""Scaled dot-product attention of three tokens, and its weights as a heat map.

    python examples/heatmap.py [FILE]

prints the sum of each row of weights and the output of each query, and writes the picture to FILE, by default
reports/heatmap.png. The numbers were chosen by hand: they show the computation and say nothing about language.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from bench.attention_map import Head, draw_weights
from bench.plots import save

TOKENS = ("the", "cat", "sat")


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights ``(queries, keys)`` and output ``(queries, width of v)``; every query sees every key."""
    scores = q @ k.T / np.sqrt(q.shape[1])
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))  # the maximum cancels, overflow does not occur
    weights = exponentials / exponentials.sum(axis=1, keepdims=True)  # along the keys: one distribution per query
    return weights, weights @ v


def main(path: Path) -> None:
    """Compute, print and draw."""
    q = k = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    v = np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    weights, out = attention(q, k, v)
    print("row sums", weights.sum(axis=1).round(6).tolist())
    print("output  ", out.round(6).tolist())

    everything_visible = np.ones(weights.shape, dtype=bool)
    head = Head(
        title="three tokens, no mask",
        tensors={"weights": weights, "mask": everything_visible},
        query_tokens=TOKENS,
        key_tokens=TOKENS,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    print("picture ", save(draw_weights([head], stem=path.stem), path.parent))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "reports/heatmap.png"))
