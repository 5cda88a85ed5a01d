"""Planted measurements: each cause is named for its own plant, and for no other."""

from __future__ import annotations

import random

import pytest
from fake_cuda import MS, US, FakeCuda

from bench.clocks import CudaColdClock, CudaGraphClock, CudaHotClock, HostClock, PerfCounterClock
from bench.cross_examination import BOUND, cross_examine
from bench.flags import sample_flags
from bench.record import Measurement, Sampled, Telemetry
from bench.timing import Samples


def blocks(us_per_call, calls=10, spread=0.01, seed=0):
    """Thirty blocks, of which the middle half lies within ``spread`` of the given time."""
    rng = random.Random(seed)
    return tuple(round(us_per_call * US * calls * (1 + rng.uniform(-2 * spread, 2 * spread))) for _ in range(30))


def measured(main="cuda_event_cold", spread=0.01, telemetry=(), reasons=None, **us_per_call):
    """A measurement with so many microseconds a call by clock; the main clock is one of them."""
    samples = {name: blocks(us, 10, spread, seed) for seed, (name, us) in enumerate(us_per_call.items())}
    others = [
        Sampled(clock=name, samples_ns=ns, calls_per_sample=10, processes=(0,) * len(ns))
        for name, ns in samples.items()
        if name != main
    ]
    others += [Sampled(clock=name, reason=reason) for name, reason in (reasons or {}).items()]
    return Measurement(
        samples_ns=samples[main],
        calls_per_sample=10,
        processes=(0,) * len(samples[main]),
        clock=main,
        others=tuple(others),
        telemetry=telemetry,
        first_call_ns=1,
        prepare_ns=1,
        memory=None,
    )


def gpu(cold, hot, graph, host, **more):
    times = {"cuda_event_cold": cold, "cuda_event_hot": hot, "cuda_graph": graph, "host": host}
    return measured(**{name: us for name, us in times.items() if us is not None}, **more)


def names(measurement):
    return [finding.name for finding in cross_examine(measurement)]


SOUND = [
    gpu(cold=1000, hot=1000, graph=1000, host=20),
    gpu(cold=1060, hot=1000, graph=990, host=900),
    gpu(cold=1000, hot=1000, graph=None, host=20, reasons={"cuda_graph": "it synchronises"}),
    gpu(cold=1000, hot=None, graph=None, host=None),
    gpu(cold=1000, hot=None, graph=1000, host=None),
    measured("perf_counter", perf_counter=1000),
]


@pytest.mark.parametrize("measurement", SOUND)
def test_clocks_that_agree_are_left_alone(measurement):
    assert names(measurement) == []


PLANTS = {
    "host_bound": [
        gpu(cold=20, hot=20, graph=20, host=200),  # hidden by the spin
        gpu(cold=20, hot=200, graph=20, host=200),  # not hidden from the long block
        gpu(cold=200, hot=200, graph=20, host=200),
        gpu(cold=20, hot=60, graph=20, host=200),  # the spin hid a part
        gpu(cold=200, hot=200, graph=None, host=190),
        gpu(cold=20, hot=200, graph=None, host=200),
    ],
    "hot_cache": [
        gpu(cold=150, hot=100, graph=100, host=20),
        gpu(cold=400, hot=100, graph=98, host=90),
        gpu(cold=150, hot=100, graph=None, host=20),
        gpu(cold=150, hot=None, graph=100, host=20),
        gpu(cold=150, hot=100, graph=100, host=None),
    ],
    "short_call": [gpu(cold=9, hot=4, graph=4, host=3)],
    "missing_synchronisation": [
        measured("perf_counter", perf_counter=20, cuda_event_hot=1000, cuda_graph=1000, host=20),
        measured("perf_counter", perf_counter=20, cuda_graph=1000),
        gpu(cold=1000, hot=15, graph=1000, host=10),
        gpu(cold=5, hot=1000, graph=1000, host=20),
        gpu(cold=5, hot=1000, graph=None, host=20),
    ],
    "uncaptured": [gpu(cold=1000, hot=1000, graph=100, host=20), gpu(cold=1000, hot=1000, graph=10, host=30)],
    "slowed_down": [
        gpu(cold=1000, hot=1300, graph=1300, host=20),
        gpu(cold=1000, hot=1300, graph=None, host=20),
    ],
    "unexplained": [gpu(cold=1000, hot=1000, graph=800, host=20), gpu(cold=1000, hot=1000, graph=1300, host=20)],
}


@pytest.mark.parametrize(("cause", "measurement"), [(cause, m) for cause, plants in PLANTS.items() for m in plants])
def test_each_cause_is_named_for_its_own_plant_alone(cause, measurement):
    assert names(measurement) == [cause]


def test_two_causes_at_once_are_both_named():
    assert names(gpu(cold=60, hot=20, graph=20, host=45)) == ["host_bound", "hot_cache"]


def test_events_that_both_end_early_are_both_named():
    assert names(gpu(cold=5, hot=5, graph=1000, host=4)) == ["missing_synchronisation"] * 2


@pytest.mark.parametrize(("spread", "expected"), [(0.01, ["hot_cache"]), (0.3, [])])
def test_noise_is_no_disagreement(spread, expected):
    assert names(gpu(cold=1150, hot=1000, graph=1000, host=20, spread=spread)) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.8, []), (1.2, ["hot_cache"])])
def test_the_bound_is_where_it_is_said_to_be(share, expected):
    assert names(gpu(cold=1000 * (1 + share * BOUND), hot=1000, graph=1000, host=20, spread=0.001)) == expected


def test_the_reason_holds_the_numbers():
    (finding,) = cross_examine(gpu(cold=150, hot=100, graph=100, host=20, spread=0.0))
    assert "150.0 us after a flush and 100.0 us hot (1.50x)" in finding.reason
    (finding,) = cross_examine(gpu(cold=20, hot=20, graph=20, host=200, spread=0.0))
    assert "issuing a call takes 200.0 us, its work 20.0 us" in finding.reason
    assert "hidden from the events" in finding.reason
    (finding,) = cross_examine(gpu(cold=20, hot=200, graph=20, host=200, spread=0.0))
    assert "shows between hot events" in finding.reason


@pytest.mark.parametrize(("end", "told"), [(1200.0, True), (None, False)])
def test_a_slower_device_is_shown_by_its_frequency_where_it_is_known(end, told):
    readings = {"sm_clock_start_mhz": 1980.0, "sm_clock_end_mhz": end}
    reasons = {} if end else {"sm_clock_end_mhz": "not supported"}
    seen = (Telemetry(device="GPU-1", window_s=1.0, readings=readings, reasons=reasons),)
    (finding,) = cross_examine(gpu(cold=1000, hot=1300, graph=1300, host=20, telemetry=seen))
    assert ("from 1980.0 to 1200.0 MHz" in finding.reason) == told


def test_a_clock_that_reads_zero_says_nothing():
    assert names(gpu(cold=0, hot=1000, graph=1000, host=20)) == []


@pytest.mark.parametrize(
    ("flag", "changes"), [("contended", {"cpu_ns": [MS // 4] * 40}), ("interference", {"isolated_ns": [MS // 2] * 20})]
)
def test_other_work_and_other_arms_are_flags_of_one_clock_and_not_a_matter_between_clocks(flag, changes):
    samples = Samples(calls=1, ns=[MS] * 40, positions=[0] * 40, **changes)
    assert [doubt.name for doubt in sample_flags(samples)] == [flag]
    measurement = measured("perf_counter", perf_counter=1000).model_copy(
        update={name: tuple(values) for name, values in changes.items()}
    )
    assert cross_examine(measurement) == ()


def measured_on(cuda, run, wall=False):
    """What the clocks themselves say of a call on a fake device, with ``perf_counter`` that never waits if asked."""
    clocks = [CudaColdClock(cuda, cuda.now, cuda.buffer), CudaHotClock(cuda, cuda.now), CudaGraphClock(cuda, cuda.now)]
    clocks.append(HostClock(cuda, cuda.now))
    if wall:
        clocks[0] = PerfCounterClock(cuda.now)
    samples = {clock.name: [clock.time_block(run, 10).ns for _ in range(12)][4:] for clock in clocks}
    return measured(clocks[0].name, **{name: ns[-1] / 10 / US for name, ns in samples.items()}, spread=0.001)


@pytest.mark.parametrize(
    ("kernels", "hot_us", "cold_us", "wall", "expected"),
    [
        (1, 1000, 1000, False, []),
        (1, 100, 180, False, ["hot_cache"]),
        (40, 1, 1, False, ["host_bound"]),
        (1, 1000, 1000, True, ["missing_synchronisation"]),
    ],
)
def test_what_the_clocks_of_a_device_say_leads_to_the_cause(kernels, hot_us, cold_us, wall, expected):
    cuda = FakeCuda()

    def run():
        for _ in range(kernels):
            cuda.launch(hot_us * US, cold_us * US)

    assert names(measured_on(cuda, run, wall)) == expected
