"""Faults of the harness, each caught by the experiment that is there for it."""

from __future__ import annotations

import pytest
from fake_cuda import FakeCuda

from bench.clocks import CudaColdClock, CudaHotClock
from bench.soundness.e11_mutants import COMPARISONS, OTHERS, SOUND, Mutants


@pytest.fixture(scope="module")
def observed():
    return {unit: Mutants().observe(unit, None) for unit in Mutants().units(quick=False)}


@pytest.mark.parametrize(
    ("fault", "caught_by"),
    [
        ("sequential order", "e01_identical_code"),
        ("unpaired", "e03_power"),
        ("wrong baseline", "e03_power"),
        ("first call timed", "e07_timer"),
        ("memory peak not reset", "e08_memory"),
    ],
)
def test_each_fault_makes_its_experiment_miss(observed, fault, caught_by):
    assert caught_by in observed[fault]["missed"]


def test_the_harness_as_built_misses_nothing_on_the_same_machine(observed):
    assert observed[SOUND]["missed"] == []
    assert Mutants().judge(observed).met is True


def test_every_fault_is_planted_and_a_survivor_misses_the_target(observed):
    assert set(observed) == {*COMPARISONS, *OTHERS}
    survivor = {**observed, "unpaired": {"missed": [], "found": {}}}
    assert Mutants().judge(survivor).met is False
    accused = {**observed, SOUND: {"missed": ["e03_power"], "found": {}}}
    assert Mutants().judge(accused).met is False
    assert Mutants().judge({SOUND: observed[SOUND]}).met is None


COLD_NS, HOT_NS = 60_000, 20_000


def cold_reading(cuda, buffer):
    clock = CudaColdClock(cuda, cuda.now, buffer)
    return clock.time_block(lambda: cuda.launch(HOT_NS, cold_ns=COLD_NS), 10).ns / 10


def test_a_clock_that_does_not_flush_reads_a_warm_cache():
    class Kept:
        def zero_(self):
            return self

    cuda = FakeCuda()
    assert cold_reading(cuda, cuda.buffer) == COLD_NS
    assert cold_reading(FakeCuda(), lambda size: Kept()) == pytest.approx(HOT_NS, abs=(COLD_NS - HOT_NS) / 5)


def test_a_clock_that_does_not_synchronise_reads_the_launch_and_is_told_from_the_others():
    from bench.clocks import PerfCounterClock
    from bench.cross_examination import cross_examine
    from bench.record import Measurement, Sampled

    cuda = FakeCuda()
    launch_only = [PerfCounterClock(cuda.now).time_block(lambda: cuda.launch(HOT_NS), 1).ns for _ in range(20)]
    assert max(launch_only) < HOT_NS / 2
    cuda = FakeCuda()
    hot = [CudaHotClock(cuda, cuda.now).time_block(lambda: cuda.launch(HOT_NS), 1).ns for _ in range(20)]
    assert set(hot) == {HOT_NS}
    measurement = Measurement(
        samples_ns=tuple(launch_only),
        calls_per_sample=1,
        processes=(0,) * 20,
        clock="perf_counter",
        first_call_ns=1,
        prepare_ns=1,
        memory=None,
        others=(Sampled(clock="cuda_event_hot", samples_ns=tuple(hot), processes=(0,) * 20),),
    )
    assert "missing_synchronisation" in [finding.name for finding in cross_examine(measurement)]
