import pytest

from bench.probes.allocator_events import AllocatorEvents
from bench.soundness._planted import BEYOND_REACH, PLANTED, tensor_of
from bench.soundness.e08_memory import LAWS, RESIDENT, MemoryTruth, read_peaks

MIB = 1 << 20


def observations(**changes):
    exact = {"planted/nested": (111, {"111": 100}), "law/naive T=128": (655360, {"655360": 100})} | changes.get(
        "exact", {}
    )
    found = {unit: {"expected": expected, "peaks": peaks} for unit, (expected, peaks) in exact.items()}
    grown = changes.get("grown", 32 * MIB)
    resident = {"expected": 32 * MIB, "peaks": {}, "vm_hwm_bytes": grown, "reason": None}
    return found | {"resident/naive T=1024 resident": resident}


def test_exact_peaks_meet_the_target():
    finding = MemoryTruth().judge(observations())
    assert finding.met is True
    assert "largest error 0 bytes" in finding.found


@pytest.mark.parametrize("peaks", [{"112": 100}, {"110": 100}, {"111": 99, "112": 1}])
def test_one_byte_in_one_reading_misses_it(peaks):
    assert MemoryTruth().judge(observations(exact={"planted/nested": (111, peaks)})).met is False


@pytest.mark.parametrize(("grown", "met"), [(33 * MIB, True), (31 * MIB, True), (34 * MIB, False), (28 * MIB, False)])
def test_the_second_opinion_has_to_agree(grown, met):
    assert MemoryTruth().judge(observations(grown=grown)).met is met


def test_no_second_opinion_is_no_proof():
    assert MemoryTruth().judge(observations(grown=None)).met is False


def test_what_lies_beyond_reach_is_told_and_not_held_against_it():
    unseen = {"planted/threads of Python": (2048, {"0": 100})}
    finding = MemoryTruth().judge(observations(exact=unseen))
    assert finding.met is True
    assert "beyond the probe's reach: threads of Python read as 0 bytes" in finding.found


def test_too_little_says_nothing():
    assert MemoryTruth().judge({}).met is None
    assert MemoryTruth().judge({"planted/nested": {"expected": 1, "peaks": {"1": 100}}}).met is None


def test_quick_units_are_units_of_the_whole():
    assert set(MemoryTruth().units(True)) < set(MemoryTruth().units(False))


@pytest.mark.parametrize("name", [name for name in PLANTED if name not in BEYOND_REACH])
def test_a_planted_peak_is_read_to_the_byte(name):
    found = read_peaks(f"planted/{name}", 2)
    assert found["peaks"] == {str(found["expected"]): 2}


def test_threads_of_python_are_not_seen():
    # Should this ever read 2048, the limit is gone and BEYOND_REACH has to go as well.
    assert read_peaks("planted/threads of Python", 2) == {"expected": 2048, "peaks": {"0": 2}}


@pytest.mark.parametrize("name", [name for name in LAWS if "T=128" in name])
def test_a_law_is_read_to_the_byte(name):
    found = read_peaks(f"law/{name}", 2)
    assert found["peaks"] == {str(found["expected"]): 2}


def test_what_is_compared_with_the_mark_is_large_enough_to_tell():
    from bench.implementation import implementations
    from bench.memory_check import LEAST_PEAK_BYTES

    peaks = [implementations.get(name).predicted_peak_bytes(problem) for name, problem in RESIDENT.values()]
    assert min(peaks) >= LEAST_PEAK_BYTES


def test_an_address_that_an_earlier_reading_saw_lowers_no_later_peak():
    # torch remembers the size of a block by its address, also after the block was released unseen.
    probe, kept = AllocatorEvents(), []
    probe.read(lambda: kept.extend(tensor_of(1 << 16) for _ in range(64)), receipt=False)
    seen = {tensor.data_ptr() for tensor in kept}
    kept.clear()
    older = [tensor_of(1 << 16) for _ in range(256)]
    assert any(tensor.data_ptr() in seen for tensor in older), "the allocator is expected to reuse what it got back"

    def run():
        first = tensor_of(1024)
        older.clear()
        return first, tensor_of(2048)

    assert probe.read(run, receipt=False).peak_bytes == 3072
