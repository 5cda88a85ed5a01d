"""Sentences on planted cells: what follows is said, what would be false or unfounded is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import planted
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.digest import Digest, MemoryTimeline, Stage, Tensor, save_digest
from bench.explanation import Explanation, explain, markdown_lines, stored_digest, text_lines
from bench.header import Bandwidth, Ceilings
from bench.problem import Problem
from bench.record import Memory, Record, Sampled

RATE, CACHE_RATE, MEMORY_RATE, CACHE_BYTES = 1e11, 5e10, 1e10, 32 << 20
CEILINGS = Ceilings(
    flop_per_s={"float32": RATE},
    bytes_per_s=1e11,
    memory_bytes_per_s=MEMORY_RATE,
    cache_bytes=CACHE_BYTES,
    bandwidth=tuple(
        Bandwidth(kind="copy", working_set_bytes=size, threads=2, bytes_per_s=rate)
        for size, rate in ((1 << 20, 1e11), (CACHE_BYTES, CACHE_RATE), (4 * CACHE_BYTES, MEMORY_RATE))
    ),
)
REGIMES = ("compute-bound", "bandwidth-bound", "cache-bound", "launch-bound")


def why(records: list[Record], index: int = -1, ceilings: Ceilings | None = CEILINGS, **options: Any) -> Explanation:
    """The explanation of one of the records of a run."""
    run = planted.run(records, header={"ceilings": ceilings})
    return explain(run, records[index], **options)


def texts(found: Explanation, topic: str | None = None) -> list[str]:
    return [one.text for one in found.sentences if topic in (None, one.topic)]


def refused(found: Explanation) -> str:
    return " | ".join(f"{one.topic}: {one.reason}" for one in found.refusals)


def stated(found: Explanation) -> set[str]:
    """Regimes that are stated as certain."""
    certain = " ".join(one.text for one in found.sentences if one.certain)
    return {name for name in REGIMES if f"It is {name}" in certain}


def decode(name: str, length: int, ms: float, **options: Any) -> Record:
    """One query against a cache of keys; the workspace is small."""
    problem = Problem(seqlen_q=1, seqlen_k=length)
    peak = Memory(
        peak_bytes=problem.output_bytes + 4096,
        output_bytes=problem.output_bytes,
        workspace_bytes=4096,
        mask_bytes=0,
        predicted_peak_bytes=None,
        method="allocator_events",
    )
    return planted.record(name, 1, ms, **({"seqlen_q": 1, "seqlen_k": length, "peak": peak, "noise": 0.0} | options))


def flash(law: Callable[[int], float], *lengths: int, **options: Any) -> list[Record]:
    return planted.ladder(law, "sdpa_flash", lengths or (256, 512, 1024), **options)


def test_compute_bound_names_products_and_their_share():
    found = why(flash(lambda t: 1.3e-5 * t**2))  # 10.7 of 13.6 ms at 1e11 FLOP/s
    (sentence,) = [one for one in found.sentences if one.topic == "regime"]
    assert sentence.text.startswith("It is compute-bound: its products at the best measured rate take 79%")
    assert {(one.source, one.field) for one in sentence.support} >= {
        ("record", "flop"),
        ("ceilings", "flop_per_s.float32"),
    }
    assert stated(found) == {"compute-bound"}
    assert any(text.startswith("It reaches 79%") for text in texts(found, "distance to the roof"))
    assert any("Its roof is that of products" in text and "is above the" in text for text in texts(found))


def test_bandwidth_bound_beyond_the_cache():
    found = why([decode("sdpa_flash", 1 << 16, 15.0), decode("sdpa_flash", 1 << 17, 30.0)])  # 26.8 ms at 1e10 B/s
    assert stated(found) == {"bandwidth-bound"}
    assert "take 89%" in texts(found, "regime")[0]
    assert any("Its roof is that of bandwidth" in text for text in texts(found))


def test_cache_bound_where_all_that_is_touched_fits():
    found = why([decode("sdpa_flash", 1 << 12, 0.20), decode("sdpa_flash", 1 << 13, 0.40)])  # 0.335 ms at 5e10 B/s
    assert stated(found) == {"cache-bound"}
    fields = [one.field for one in found.sentences[1].support]
    assert "cache_bytes" in fields


def test_bandwidth_of_an_unknown_place_is_not_called_that_of_memory():
    quick = Ceilings(flop_per_s={"float32": RATE}, bytes_per_s=CACHE_RATE)
    found = why([decode("sdpa_flash", 1 << 12, 0.20), decode("sdpa_flash", 1 << 13, 0.40)], ceilings=quick)
    assert stated(found) == {"bandwidth-bound"}
    assert "whether it is the bandwidth of memory or of a cache is not known" in refused(found)


def test_launch_bound_where_time_does_not_grow_with_the_work():
    found = why(flash(lambda t: 5.0 + 1e-9 * t**2, 128, 256))
    assert stated(found) == {"launch-bound"}
    assert "what does not grow with the FLOP between T=256 and T=128 takes 99" in texts(found, "regime")[0]
    (sentence,) = [one for one in found.sentences if one.topic == "growth"]
    assert "whether the time grows at all is open, the intervals overlap" in sentence.text and not sentence.certain


@pytest.mark.parametrize("law", [lambda t: 4e-3 * t, lambda t: 1e-6 * t**2.5, lambda t: 5e-5 * t**2])
def test_time_that_grows_is_never_launch_bound(law):
    found = why(flash(law, 128, 256, 512))
    assert "launch-bound" not in stated(found)
    assert any("the time grows" in text for text in texts(found, "growth"))


def test_no_limit_that_takes_half_is_said_to_be_open():
    found = why(flash(lambda t: 5e-5 * t**2))
    assert stated(found) == set()
    assert texts(found, "regime")[0].startswith("INCONCLUSIVE: no limit that is known takes half of its time")


def test_an_interval_that_holds_one_half_is_open():
    found = why(flash(lambda t: 2.05e-5 * t**2, noise=0.2))
    assert stated(found) == set()
    assert "whether it is compute-bound is open: one half lies within" in texts(found, "regime")[0]


def test_two_limits_that_are_as_near_are_not_told_apart():
    even = CEILINGS.model_copy(update={"flop_per_s": {"float32": 4.0 * MEMORY_RATE / 8}})
    found = why([decode("sdpa_flash", 1 << 16, 15.0), decode("sdpa_flash", 1 << 17, 30.0)], ceilings=even)
    assert stated(found) == set()
    assert "but so do, or nearly" in texts(found, "regime")[0]


def test_a_call_that_beats_a_limit_is_held_against_none():
    found = why(flash(lambda t: 5e-6 * t**2))
    assert stated(found) == set()
    assert "faster than a measured limit of its machine allows: its products" in refused(found)
    assert not texts(found, "distance to the roof")


def test_shares_that_are_more_than_all_together_decide_nothing():
    found = why(flash(lambda t: 0.6 + 1e-9 * t**2 if t == 128 else 0.7, 128, 256))
    assert stated(found) == set()
    assert "but so do, or nearly" in texts(found, "regime")[0]


def test_without_ceilings_no_roof_is_named_and_the_reason_is():
    found = why(flash(lambda t: 1.3e-5 * t**2), ceilings=None)
    assert stated(found) == set()
    assert not texts(found, "distance to the roof")
    assert "header.ceilings is null" in refused(found)
    assert not any("ceilings" in one.source for sentence in found.sentences for one in sentence.support)


def test_a_dtype_without_a_rate_has_no_roof():
    found = why(flash(lambda t: 1.3e-5 * t**2, dtype="bfloat16"))
    assert "no rate of products in bfloat16" in refused(found)
    assert not texts(found, "distance to the roof")


def test_a_single_length_says_nothing_of_growth():
    found = why(flash(lambda t: 0.5, 256))
    assert "launch-bound" not in " ".join(texts(found))
    assert "no cell of sdpa_flash of another length" in refused(found)
    assert not texts(found, "growth")


@pytest.mark.parametrize("flag", ["impossible", "clocks_disagree"])
def test_a_time_that_cannot_be_explains_nothing(flag):
    records = flash(lambda t: 1.3e-5 * t**2)
    records[-1] = planted.record("sdpa_flash", 1024, 1.0, flags=[(flag, "planted doubt")])
    found = why([*records, planted.record("naive", 1024, 20.0)], index=2)
    assert {one.topic for one in found.sentences} == {"outcome", "memory", "the best on this problem"}
    assert f"flagged {flag} (planted doubt)" in refused(found)
    assert texts(found, "the best on this problem") == [texts(found, "the best on this problem")[0]]
    assert "naive has a time on this problem" in texts(found, "the best on this problem")[0]


def test_what_slowed_the_call_down_is_not_taken_for_the_cost_of_calling():
    records = flash(lambda t: 5.0, 128, 256, flags=[("contended", "wall time was 3x")])
    found = why(records)
    assert stated(found) == set()
    assert "regime, growth, set-up: its time is compared with no other one: it is flagged contended" in refused(found)
    assert "Flagged contended: wall time was 3x." in texts(found, "outcome")
    assert "That time is longer than the call needs: it is flagged contended" in texts(found, "regime")[0]
    assert not texts(found, "growth")


def test_a_time_that_was_still_changing_is_compared_with_no_neighbour():
    found = why(flash(lambda t: 5.0, 128, 256, flags=[("not_steady", "planted")]))
    assert stated(found) == set()
    assert not texts(found, "growth")
    assert "longer than the call needs" not in " ".join(texts(found))


def test_a_limit_that_takes_half_of_a_slowed_time_still_does():
    records = flash(lambda t: 1.3e-5 * t**2)
    records[-1] = planted.record("sdpa_flash", 1024, 13.6, flags=[("throttled", "clock fell")])
    found = why(records)
    assert stated(found) == {"compute-bound"}
    assert any("of its roof, at least: it is flagged throttled" in text for text in texts(found))


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("incorrect", "It is wrong, so it has no time: planted incorrect"),
        ("unsupported", "It cannot compute this problem: planted unsupported"),
        ("unavailable", "It cannot run on this machine: planted unavailable"),
        ("out_of_memory", "It ran out of memory: planted out_of_memory"),
        ("timeout", "It took too long: planted timeout"),
        ("crashed", "Its process died: planted crashed"),
        ("error", "It failed: planted error"),
        ("verified", "It is right and has no time: planted verified"),
    ],
)
def test_a_cell_without_a_time_is_explained_by_its_reason(status, says):
    found = why([planted.record("naive", 1024, status=status), planted.record("sdpa_flash", 1024, 5.0)], index=0)
    assert texts(found)[0] == says
    assert {one.topic for one in found.sentences} <= {"outcome", "the best on this problem"}
    assert f"its status is {status}" in refused(found)
    assert "sdpa_flash has a time on this problem" in texts(found, "the best on this problem")[0]


def test_what_was_predicted_not_to_fit_was_not_tried():
    record = planted.record("naive", 1024, status="out_of_memory").model_copy(update={"predicted": True})
    assert "predicted not to fit into memory and was not tried" in texts(why([record]))[0]


def test_errors_of_a_wrong_cell_are_said_with_their_limits():
    wrong = planted.agreement(0.5, limit=2e-5, passed=False, nonfinite=3)
    found = why([planted.record("naive", 1024, status="incorrect", judged=wrong)])
    assert any(
        "out is off by up to 0.500 and has 3 entries that are not finite, beyond" in text for text in texts(found)
    )


def test_the_fastest_is_named_with_the_paired_ratio_and_the_difference_in_memory():
    cells = [planted.record("naive", 1024, 20.0), planted.record("sdpa_flash", 1024, 10.0)]
    found = why(cells, index=0)
    first, second = texts(found, "the best on this problem")[:2]
    assert first.startswith("sdpa_flash is the fastest of 2: this one takes 2.0")
    assert second.endswith("sdpa_flash never holds all scores.")
    assert texts(why(cells, index=1), "the best on this problem")[0].startswith(
        "It is the fastest of 2: the next, naive"
    )


def test_cells_that_are_not_told_apart_have_no_fastest():
    cells = [planted.record("naive", 1024, 10.0, noise=0.2), planted.record("sdpa_flash", 1024, 10.0, noise=0.2)]
    for index in (0, 1):
        (sentence, *_) = [one for one in why(cells, index=index).sentences if one.topic == "the best on this problem"]
        assert not sentence.certain and "told apart" in sentence.text


@pytest.mark.parametrize("flag", ["impossible", "clocks_disagree"])
def test_rivals_whose_time_explains_nothing_are_not_the_best(flag):
    cells = [
        planted.record("naive", 1024, 20.0),
        planted.record("sdpa_math", 1024, 15.0),
        planted.record("sdpa_flash", 1024, 0.001, flags=[(flag, "planted")]),
    ]
    assert texts(why(cells, index=0), "the best on this problem")[0].startswith("sdpa_math is the fastest of 2")


def test_memory_is_held_against_the_law_and_its_growth_solved():
    found = why(planted.ladder(lambda t: 1e-5 * t**2, "naive", (128, 256, 512, 1024)))
    said = texts(found, "memory")
    assert "equals the law of the theory" in said[1]
    assert said[2] == "Over 4 lengths the peak grows with T²: 2 score matrices, to the byte."
    linear = why(planted.ladder(lambda t: 1e-5 * t**2, "sdpa_flash", (128, 256, 512, 1024)))
    assert "grows linearly: no score matrix in it" in texts(linear, "memory")[2]
    assert "so it never holds all scores" in texts(linear, "memory")[0]


def test_a_peak_off_its_law_is_said_so_and_no_growth_is_invented():
    records = planted.ladder(lambda t: 1e-5 * t**2, "naive", (128, 256, 512, 1024))
    heavier = planted.memory("naive", records[-1].problem).model_copy(update={"peak_bytes": 10_000_000})
    records[-1] = planted.record("naive", 1024, 10.0, peak=heavier)
    found = why(records)
    assert "above the law of the theory" in texts(found, "memory")[1] or "below" in texts(found, "memory")[1]
    assert "it does not lie on one polynomial" in refused(found)
    assert not any("grows with T²" in text for text in texts(found))


def test_a_pair_costs_more_beyond_the_cache_only_where_intervals_part():
    def law(t: int) -> float:
        return (1e-5 if t < 2048 else 2e-5) * t**2

    found = why(planted.ladder(law, "naive", (512, 1024, 2048)))  # 2 * 67 MB at 2048, 35 MB at 1024: beyond both
    assert any(text.startswith("A pair costs 2.0") and "T=512" in text for text in texts(found, "growth"))
    same = why(planted.ladder(lambda t: 1e-5 * t**2, "naive", (512, 1024, 2048), noise=0.05))
    assert any(
        text.startswith("INCONCLUSIVE: whether a pair costs more here is open") for text in texts(same, "growth")
    )
    inside = why(planted.ladder(law, "sdpa_flash", (512, 1024, 2048)))
    assert not any("pair costs" in text for text in texts(inside))


def causal(law: Callable[[int], float], saved: float) -> list[Record]:
    """A full ladder, and a causal one that takes ``saved`` of its time."""
    full = planted.ladder(law, "sdpa_flash", (256, 512, 1024))
    return full + planted.ladder(lambda t: law(t) * saved, "sdpa_flash", (256, 512, 1024), mask="causal")


def test_hidden_pairs_are_judged_by_the_cell_that_sees_all():
    def law(t: int) -> float:
        return 1.3e-5 * t**2

    assert any("most hidden pairs cost nothing" in text for text in texts(why(causal(law, 0.52)), "growth"))
    assert any("cost nearly as much" in text for text in texts(why(causal(law, 1.02)), "growth"))


def test_equal_times_of_a_launch_bound_call_do_not_mean_that_hidden_pairs_cost_time():
    found = why(causal(lambda t: 50.0 + 1e-9 * t**2, 1.0))
    assert not any("cost nearly as much" in text for text in texts(found))
    assert any("whether hidden pairs cost time is open" in text for text in texts(found, "growth"))


def test_set_up_that_never_pays_is_said_so():
    def cell(name: str, ms: float, setup_ms: float) -> Record:
        return planted.record(name, 1024, ms, noise=0.0, measured={"setup_ns": round(setup_ms * 1e6), "prepare_ns": 0})

    slow = why([cell("naive", 10.0, 0.0), cell("flex", 12.0, 5000.0)])
    assert "it is no faster: that never pays" in texts(slow, "set-up")[0]
    quick = why([cell("naive", 10.0, 0.0), cell("flex", 5.0, 5000.0)])
    assert "pays after 1000 [1000, 1000] calls" in texts(quick, "set-up")[0]


def sampled(clock: str, ms: float) -> Sampled:
    return Sampled(clock=clock, samples_ns=(round(ms * 1e6),) * 7, processes=(0,) * 7)


def test_the_host_that_needs_longer_than_the_device_is_named():
    others = (sampled("host", 0.08), sampled("cuda_graph", 0.02))
    found = why([planted.record("sdpa_flash", 256, 0.03, measured={"others": others})])
    assert any(
        "launch-bound where calls follow one another: issuing one takes 0.0800 ms" in text for text in texts(found)
    )
    quick = (sampled("host", 0.01), sampled("cuda_graph", 0.02))
    found = why([planted.record("sdpa_flash", 256, 0.03, measured={"others": quick})])
    assert "issuing" not in " ".join(texts(found))


def stage(name: str, share: float, roof: str | None, **fields: Any) -> Stage:
    plain = {"flop": 10, "moved_bytes": 10, "roof_fraction": None if roof == "overhead" else 0.7, "calls": 1}
    return Stage(name=name, time_ms=share * 20, share=share, operators=("aten::mm",), roof=roof, **(plain | fields))


def digest(*stages: Stage, record: Record, **fields: Any) -> Digest:
    assert record.measurement is not None
    ms = record.measurement.samples_ns[0] / 1e6
    plain: dict[str, Any] = {
        "problem": record.problem,
        "implementation": record.implementation,
        "implementation_version": record.implementation_version,
        "device": "cpu",
        "device_name": "cpu",
        "threads": 2,
        "steps": 3,
        "total_ms": 1.05 * ms,
        "unprofiled_ms": ms,
        "stages": stages,
        "operators": 5,
        "launches": None,
        "ceilings": CEILINGS,
        "memory": None,
        "tools": (),
    }
    return Digest(**(plain | fields))


NAIVE_STAGES = (
    stage("softmax", 0.45, "bandwidth"),
    stage("score product", 0.25, "compute"),
    stage("scale and mask", 0.2, "bandwidth"),
    stage("overhead", 0.1, "overhead"),
)


def test_a_profile_tells_what_the_limits_leave_open():
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    found = why(records, digest=digest(*NAIVE_STAGES, record=records[-1]))
    assert stated(found) == {"bandwidth-bound"}
    said = texts(found, "what dominates")
    assert said[0] == (
        "By its profile, its time goes to softmax 45% (70% of the bandwidth roof); score product 25% (70% of the "
        "compute roof); scale and mask 20% (70% of the bandwidth roof)."
    )
    assert said[1] == "A call is 5 operators."
    small = planted.ladder(lambda t: 5e-5 * t**2, "naive", (256, 512))
    assert stated(why(small, digest=digest(*NAIVE_STAGES, record=small[-1]))) == {"cache-bound"}


def test_profiles_of_both_tell_how_much_each_moves():
    cells = [planted.record("naive", 1024, 20.0), planted.record("sdpa_flash", 1024, 10.0)]
    own = digest(*NAIVE_STAGES, record=cells[0])
    fused = digest(stage("fused attention", 0.98, "compute", moved_bytes=3), record=cells[1], operators=1)
    said = texts(why(cells, index=0, digest=own, others={"sdpa_flash": fused}), "the best on this problem")
    assert "By their profiles, operators read and write 40 B here and 3 B there" in said[-2]
    assert said[-1] == "A call of this one is 5 operators, one of sdpa_flash 1."
    assert "there is none of sdpa_flash" in refused(why(cells, index=0, digest=own))
    assert "their profiles" not in " ".join(texts(why(cells, index=0, digest=own)))
    unknown = stage("compiled code", 0.9, None, moved_bytes=None, reason="fused by a compiler")
    other = digest(unknown, record=cells[1], operators=1)
    parts = [stage(name, 0.04, None, moved_bytes=None, reason="-") for name in ("other", "layout copies")]
    several = digest(*parts, stage("softmax", 0.92, "bandwidth"), record=cells[1])
    for open_one in (other, several):
        said = texts(why(cells, index=0, digest=own, others={"sdpa_flash": open_one}), "the best on this problem")
        assert not any("read and write" in text for text in said)


def test_a_profile_that_contradicts_the_limits_decides_nothing():
    records = planted.ladder(lambda t: 1.3e-5 * t**2, "naive", (1024, 2048))
    found = why(records, digest=digest(*NAIVE_STAGES, record=records[-1]))
    assert stated(found) == set()
    assert "run and profile contradict one another" in texts(found, "regime")[0]


def test_a_profile_without_a_majority_decides_nothing():
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    even = (stage("softmax", 0.51, "bandwidth"), stage("score product", 0.49, "compute"))
    found = why(records, digest=digest(*even, record=records[-1]))
    assert stated(found) == set()


def test_a_roof_that_is_nearest_but_far_bounds_nothing():
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    far = (stage("softmax", 0.8, "bandwidth", roof_fraction=0.1), stage("score product", 0.2, "compute"))
    found = why(records, digest=digest(*far, record=records[-1]))
    assert stated(found) == set()
    assert any(
        "80% of its profiled time is nearest to the bandwidth roof, but reaches 10%" in one for one in texts(found)
    )


def test_a_profile_of_a_disturbed_call_decides_nothing():
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    found = why(records, digest=digest(*NAIVE_STAGES, record=records[-1], unprofiled_ms=2000.0, total_ms=2100.0))
    assert stated(found) == set()
    assert "its profile does not tell: a call took 2.00 s when it was profiled" in refused(found)
    assert "It may be another time: a call took 2.00 s" in texts(found, "what dominates")[0]


def test_a_roof_of_the_profile_that_a_stage_beats_is_none():
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    low = (stage("softmax", 0.8, "bandwidth"), stage("value product", 0.2, "compute", roof_fraction=1.9))
    found = why(records, digest=digest(*low, record=records[-1]))
    assert stated(found) == set()
    assert "value product beats a roof that was measured too low" in refused(found)
    assert "value product 20% (beats the compute roof, which was measured too low)" in texts(found, "what dominates")[0]


def test_a_profile_that_stretches_the_call_decides_nothing():
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    found = why(records, digest=digest(*NAIVE_STAGES, record=records[-1], total_ms=300.0))
    assert stated(found) == set()
    assert "its profile does not tell: a call took 300 ms under the profiler, and 2" in refused(found)


def test_overhead_is_stated_only_beside_a_time_without_the_profiler():
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    stages = (stage("overhead", 0.9, "overhead"), stage("softmax", 0.1, "bandwidth"))
    found = why(records, digest=digest(*stages, record=records[-1], unprofiled_ms=None))
    assert "launch-bound" not in stated(found)
    assert "what calling costs cannot be read off the profile" in refused(found)
    trusted = why(records, digest=digest(*stages, record=records[-1]))
    assert stated(trusted) == {"launch-bound"}


def timeline(peak: int) -> MemoryTimeline:
    owners = (Tensor(name="scores", peak_bytes=peak - 10, count=1), Tensor(name="out", peak_bytes=10, count=1))
    return MemoryTimeline(
        method="allocator_events", peak_bytes=peak, peak_ms=1, end_ms=2, output_bytes=10, owners=owners, lifetimes=()
    )


def test_owners_of_the_peak_are_named_where_it_is_the_peak_of_the_record():
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    measurement = records[-1].measurement
    assert measurement is not None and measurement.memory is not None
    peak = measurement.memory.peak_bytes
    found = why(records, digest=digest(*NAIVE_STAGES, record=records[-1], memory=timeline(peak)))
    assert "Its peak of 136 MB is owned by scores 100%." in texts(found)
    found = why(records, digest=digest(*NAIVE_STAGES, record=records[-1], memory=timeline(peak + 1)))
    assert not any("is owned by" in text for text in texts(found))
    assert any("Who owns the peak" in text or "who owns the peak" in text for text in texts(found))


def test_profiles_are_found_at_any_depth_and_only_those_of_the_cell_and_machine(tmp_path: Path):
    records = planted.ladder(lambda t: 5e-5 * t**2, "naive", (1024, 2048))
    run = planted.run(records)
    assert "there is no profile of this cell" in (stored_digest(run, records[0], tmp_path)[1] or "")
    folder = tmp_path / "some" / "where"
    folder.mkdir(parents=True)
    save_digest(digest(*NAIVE_STAGES, record=records[0]), folder)
    assert stored_digest(run, records[0], tmp_path)[0] == digest(*NAIVE_STAGES, record=records[0])
    assert stored_digest(run, records[1], tmp_path)[0] is None
    save_digest(digest(*NAIVE_STAGES, record=records[0], threads=8), folder)
    found, reason = stored_digest(run, records[0], tmp_path)
    assert found is None and "threads 8, not 2" in (reason or "")
    (folder / "digest.json").write_text("{}")
    found, reason = stored_digest(run, records[0], tmp_path)
    assert found is None and "digest must be what" in (reason or "")


@given(
    constant=st.floats(0.0, 5.0),
    linear=st.floats(0.0, 1e-2),
    square=st.floats(1e-7, 1e-3),
    rate=st.floats(1e9, 1e13),
)
def test_no_law_of_time_makes_it_state_a_regime_that_is_false(constant, linear, square, rate):
    def law(t: int) -> float:
        return constant + linear * t + square * t**2

    ceilings = CEILINGS.model_copy(update={"flop_per_s": {"float32": rate}})
    records = flash(law, 512, 1024, noise=0.0)
    found, time = why(records, ceilings=ceilings), law(1024)
    if "launch-bound" in stated(found):
        assert constant + linear * 1024 >= 0.5 * time * 0.99
        assert constant >= 0.1 * time
    if "compute-bound" in stated(found):
        assert records[-1].flop / rate >= 0.5 * time * 1e-3 * 0.99
    assert len(stated(found)) <= 1


@given(noise=st.floats(0.0, 0.5), ms=st.floats(0.01, 1e4), flags=st.lists(st.sampled_from(["unstable", "contended"])))
def test_every_sentence_has_support_and_open_ones_say_so(noise, ms, flags):
    records = [
        planted.record(name, length, ms * (length / 512) ** 2, noise=noise, flags=[(flag, "planted") for flag in flags])
        for name in ("naive", "sdpa_flash")
        for length in (512, 1024)
    ]
    for index in range(4):
        found = why(records, index=index)
        assert all(one.support for one in found.sentences)
        assert all(one.certain != one.text.startswith("INCONCLUSIVE: ") for one in found.sentences)
        assert all(one.reason for one in found.refusals)


def test_text_and_markdown_hold_every_sentence_support_and_refusal():
    found = why(flash(lambda t: 1.3e-5 * t**2, 256, 512))
    text = " ".join(" ".join(text_lines(found)).split())
    markdown = "\n".join(markdown_lines(found))
    for one in found.sentences:
        assert one.text in text
        assert all(source.field in text and source.field in markdown for source in one.support)
    assert all(one.reason in text for one in found.refusals)
    assert markdown.count("\n- ") == len(found.sentences) + len(found.refusals)
