"""Ceilings: the stopwatch and the sizes under a scripted clock, and a short real measurement for its plausibility."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from bench import ceilings
from bench.ceilings import STREAMS, Stopwatch, cache_bytes, higher, measure_ceilings, summary, working_sets
from bench.header import Bandwidth, Ceilings


class Machine:
    """A clock that work moves: each call takes what the script says next, the last entry from then on."""

    def __init__(self, *seconds):
        self.now, self.calls, self.script = 0.0, 0, list(seconds)

    def clock(self):
        return self.now

    def run(self):
        self.calls += 1
        self.now += self.script.pop(0) if len(self.script) > 1 else self.script[0]


def best_s(machine, **settings):
    return Stopwatch(clock=machine.clock, **settings).best_s(machine.run)


def test_the_best_block_counts_and_the_first_call_does_not():
    machine = Machine(1e-9, 3.0, 2.0, 2.5, 2.2)  # a first call that is fast would be believed if it were timed
    assert best_s(machine) == 2.0


def test_calls_are_added_until_a_block_outlasts_the_clock():
    machine = Machine(1e-6)
    assert best_s(machine, block_s=1e-3, blocks=4) == pytest.approx(1e-6)
    assert machine.calls == 1 + sum(2**n for n in range(10)) + 4 * 1024


def test_slow_calls_get_the_least_blocks_and_fast_ones_all():
    slow, fast = Machine(1.0), Machine(1e-3)
    best_s(slow, least_blocks=3, blocks=20, limit_s=0.05)
    best_s(fast, least_blocks=3, blocks=20, limit_s=0.05)
    assert (slow.calls, fast.calls) == (1 + 3, 1 + 20)


def test_a_clock_that_stands_still_does_not_hang():
    machine = Machine(0.0)
    assert best_s(machine, blocks=3) == 0.0


def test_every_block_waits_for_the_device():
    """A queue that takes no time until it is waited for: without waiting the machine would be infinitely fast."""
    queued = []

    def finish():
        machine.now += sum(queued)
        queued.clear()

    machine = Machine(0.0)
    watch = Stopwatch(clock=machine.clock, finish=finish, block_s=0.01)
    assert watch.best_s(lambda: queued.append(0.004)) == pytest.approx(0.004)


@pytest.mark.parametrize("cache", [1 << 20, 32 << 20, 33 << 20, 260 << 20])
def test_working_sets_go_from_the_first_cache_to_memory(cache):
    sets = working_sets(1 << 15, cache, None)
    assert sets[0] == 1 << 15
    assert sets[-1] >= 4 * cache > sets[-2]
    assert all(after == 4 * before for before, after in pairwise(sets))


def test_working_sets_stay_within_free_memory():
    assert max(working_sets(1 << 15, 260 << 20, 1 << 30)) <= (1 << 30) / 4
    assert working_sets(1 << 15, 32 << 20, 1000) == (1 << 15,)
    assert max(working_sets(1 << 15, None, None)) >= 1 << 28


def cache_folder(tmp_path, *entries):
    for index, (level, size) in enumerate(entries):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(1, "32K"), (1, "32K"), (2, "1024K"), (3, "32768K")], 32 << 20),
        ([(1, "48K"), (2, "2M")], 2 << 20),
        ([(1, "32K"), (3, "many")], 32 << 10),
        ([], None),
    ],
)
def test_the_last_cache_is_the_one_of_the_highest_level(tmp_path, entries, expected):
    assert cache_bytes("cpu", cache_folder(tmp_path, *entries)) == expected


def point(kind="copy", size=1 << 20, rate=1e10, threads=2):
    return Bandwidth(kind=kind, working_set_bytes=size, threads=threads, bytes_per_s=rate)


def test_memory_is_what_the_cache_does_not_serve():
    curve = [point(size=1 << 20, rate=9e10), point(size=8 << 20, rate=3e10), point("read", 8 << 20, 4e10)]
    found = summary({2: {"float32": 2e11}, 1: {"float32": 1e11}}, curve, 2 << 20, "highest")
    assert (found.bytes_per_s, found.memory_bytes_per_s) == (9e10, 4e10)
    assert found.flop_per_s_one_thread == {"float32": 1e11}
    assert found.cache_bytes == 2 << 20


@pytest.mark.parametrize("cache", [None, 64 << 20])
def test_memory_is_unknown_where_no_working_set_is_known_to_exceed_the_cache(cache):
    found = summary({None: {"float32": 1e12}}, [point(threads=None)], cache, "highest")
    assert found.memory_bytes_per_s is None
    assert found.flop_per_s_one_thread == {}


def test_a_busy_machine_may_do_more_with_one_thread():
    found = summary({2: {"float32": 0.9e11}, 1: {"float32": 1e11}}, [point()], None, "highest")
    assert found.flop_per_s == {"float32": 1e11}


def test_measuring_again_raises_and_never_lowers_or_forgets():
    known = Ceilings(flop_per_s={"float32": 1.0, "bfloat16": 5.0}, bytes_per_s=3.0, bandwidth=(point(),), cache_bytes=7)
    again = Ceilings(flop_per_s={"float32": 2.0}, bytes_per_s=2.0)
    best = higher(known, again)
    assert (best.flop_per_s, best.bytes_per_s) == ({"float32": 2.0, "bfloat16": 5.0}, 3.0)
    assert (best.bandwidth, best.cache_bytes) == (known.bandwidth, 7)


@pytest.mark.parametrize(("cost_s", "tried"), [(1e-4, 4), (0.02, 4), (0.2, 3), (10.0, 3)])
def test_at_least_three_shapes_and_larger_ones_only_in_time(cost_s, tried):
    machine, widths = Machine(0.0), []

    def rate(width):
        widths.append(width)
        machine.now += cost_s
        return float(width % 500)

    best = ceilings._best_rate(rate, ceilings.MATMUL_SIZES, machine.clock, limit_s=0.8)
    assert widths == list(ceilings.MATMUL_SIZES[:tried])
    assert best == max(width % 500 for width in widths)


HASTY = Stopwatch(block_s=1e-5, blocks=1, least_blocks=1, limit_s=0.0)


def test_full_measurement_names_every_operation_thread_count_and_setting(monkeypatch):
    monkeypatch.setattr(ceilings, "cache_bytes", lambda device: 1 << 17)
    threads = torch.get_num_threads()
    found = measure_ceilings("cpu", ["float32", "bfloat16"], stopwatch=HASTY)
    assert torch.get_num_threads() == threads
    assert {b.kind for b in found.bandwidth} == set(STREAMS)
    assert {b.threads for b in found.bandwidth} == {1, threads}
    assert all(rate > 1e8 for rate in (*found.flop_per_s.values(), *found.flop_per_s_one_thread.values()))
    assert set(found.flop_per_s) == set(found.flop_per_s_one_thread) == {"float32", "bfloat16"}
    assert found.memory_bytes_per_s is not None
    assert 1e7 < found.memory_bytes_per_s <= found.bytes_per_s < 1e14
    assert found.float32_products == torch.get_float32_matmul_precision()


def test_quick_measurement_has_rates_and_one_bandwidth():
    found = measure_ceilings("cpu", ["float32"], quick=True, stopwatch=HASTY)
    cache = cache_bytes("cpu")
    assert found == Ceilings(flop_per_s=found.flop_per_s, bytes_per_s=found.bytes_per_s, cache_bytes=cache)
    assert found.flop_per_s["float32"] > 1e8 and found.bytes_per_s > 1e7


@pytest.mark.parametrize("kind", STREAMS)
def test_an_operation_passes_over_its_buffers_alone(kind):
    buffers = [torch.full((8,), float(n)) for n in (1, 2, 4)][: STREAMS[kind]]
    result = ceilings._operation(kind, buffers)()
    assert result is not None
    expected = {"copy": 2.0, "triad": 2.0 + 0.5 * 4.0, "read": 1.0}[kind]
    assert buffers[0].tolist() == [expected] * 8
    if kind == "read":
        assert float(result) == 8.0
