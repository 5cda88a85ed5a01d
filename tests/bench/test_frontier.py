"""The longest length that fits, predicted: from stored peaks, from an implementation's own law, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

import planted
import pytest

from bench.frontier import at_length, predict
from bench.implementation import implementations
from bench.problem import LARGEST_SIZE, Problem
from bench.record import Memory

GIB = 1 << 30


def need(problem, peak):
    return problem.input_bytes + peak


@pytest.mark.parametrize("limit", [1 << 20, 64 << 20, GIB])
@pytest.mark.parametrize("fields", [{}, {"dtype": "bfloat16", "head_dim": 128}, {"seqlen_q": 1, "seqlen_k": 8}])
@pytest.mark.parametrize("name", ["naive", "online_softmax", "sdpa_flash"])
def test_the_predicted_length_fits_and_the_next_one_does_not(name, limit, fields):
    problem = Problem(**({"seqlen": 8} | fields))
    found = predict(name, problem, limit)
    law = implementations.get(name).predicted_peak_bytes
    assert found.source == "its own law"
    if found.seqlen is None:
        assert need(problem, law(problem)) > limit / 8
        return
    there = at_length(problem, found.seqlen)
    assert need(there, law(there)) <= limit
    if found.seqlen < LARGEST_SIZE:
        beyond = at_length(problem, found.seqlen + 1)
        assert need(beyond, law(beyond)) > limit


def test_naive_under_two_gibibytes():
    # 32 T^2 + 4096 T bytes: two matrices of 4 heads, and q, k, v and out of 4 times 64
    assert predict("naive", Problem(seqlen=8), 2 * GIB).seqlen == 8128


def test_a_fixed_number_of_queries_stays():
    decode = Problem(seqlen_q=1, seqlen_k=64, mask="causal")
    assert (at_length(decode, 999).seqlen_q, at_length(decode, 999).seqlen_k) == (1, 999)
    assert (at_length(Problem(seqlen=64), 999).seqlen_q, at_length(Problem(seqlen=64), 999).mask.spec) == (999, "full")


def stored(name, lengths, law, mask_bytes=0, **fields):
    records = []
    for length in lengths:
        peak = Memory(
            peak_bytes=law(length), output_bytes=0, workspace_bytes=0, mask_bytes=mask_bytes, method="allocator_events"
        )
        records.append(planted.record(name, length, peak=peak, **fields))
    return records


LENGTHS = (128, 256, 1024, 1456, 2048, 2896, 4096)


def test_a_law_fitted_to_stored_peaks_goes_before_the_own_one():
    records = stored("naive", LENGTHS, lambda t: 64 * t * t + 7)
    found = predict("naive", Problem(seqlen=8), 2 * GIB, records)
    assert found.source == "fitted to 5 stored lengths, 1024 to 4096"
    assert found.seqlen == max(t for t in range(5000, 6000) if 64 * t * t + 7 + 3 * t * 1024 <= 2 * GIB)


def test_short_lengths_do_not_spoil_the_law():
    """Below a quarter of the longest length a block is cut to the length, which is another law."""
    records = stored("sdpa_math", LENGTHS, lambda t: 5000 * t if t >= 1024 else 10**9)
    assert predict("sdpa_math", Problem(seqlen=8), GIB, records).seqlen == GIB // (5000 + 3072)


def test_mask_tensors_are_part_of_what_must_fit():
    bare, masked = (
        predict("naive", Problem(seqlen=8), GIB, stored("naive", LENGTHS, lambda t: 64 * t * t, mask_bytes=extra))
        for extra in (0, GIB // 2)
    )
    assert masked.seqlen == pytest.approx(bare.seqlen / 2**0.5, rel=0.01)


@pytest.mark.parametrize(
    "records",
    [
        stored("naive", LENGTHS[:2], lambda t: t),
        stored("naive", LENGTHS, lambda t: t**3),
        stored("naive", LENGTHS, lambda t: t, mask="causal"),
        stored("naive", LENGTHS, lambda t: t, dtype="bfloat16"),
        stored("sdpa_flash", LENGTHS, lambda t: t),
    ],
    ids=["too few", "no polynomial", "another mask", "another dtype", "another implementation"],
)
def test_what_gives_no_law_is_passed_over(records):
    found = predict("naive", Problem(seqlen=8), 2 * GIB, records)
    assert (found.seqlen, found.source) == (8128, "its own law")


@dataclass
class Lawless:
    name: str = "lawless"
    layout: str = "bhsd"
    summary: str = "says nothing of its memory."
    devices: tuple[str, ...] = ("cpu",)
    backward: bool = False
    expects: tuple[str, ...] = ()

    def version(self):
        return "1"

    def unsupported(self, problem, device):
        return None

    def predicted_peak_bytes(self, problem, device="cpu"):
        return None

    def prepare(self, problem, inputs):
        raise NotImplementedError


def test_no_law_is_a_reason_not_a_number(clean_registry):
    clean_registry(implementations)
    implementations.add("lawless", Lawless())
    found = predict("lawless", Problem(seqlen=8), GIB)
    assert found.seqlen is None and "no law" in found.source


def test_nothing_fits_into_nothing():
    found = predict("naive", Problem(seqlen=8), 100)
    assert found.seqlen is None and "not even one" in found.source
