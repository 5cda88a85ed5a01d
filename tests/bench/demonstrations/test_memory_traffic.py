from __future__ import annotations

import errno
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from planted import run

from bench.claims import Answer, Hearing, claims
from bench.demonstrations import demonstrations
from bench.demonstrations._cache_misses import LINE_BYTES, cache_misses, trust
from bench.errors import Unavailable
from bench.evidence import Evidence
from bench.plots import Reading
from bench.problem import Problem

cpu = import_module("bench.demonstrations.memory_traffic")
gpu = import_module("bench.demonstrations.gpu_memory_traffic")
counter = import_module("bench.demonstrations._cache_misses")
CACHE = 32 << 20


class Cache:
    """A counter of misses, and buffers that miss once a line beyond ``holds`` bytes."""

    def __init__(self, holds: int = CACHE, seen: float = 1.0) -> None:
        self.holds, self.seen, self.misses = holds, seen, 0.0

    def count(self) -> float:
        return self.misses

    def reader(self, size: int) -> Callable[[], object]:
        def read() -> None:
            if size > self.holds:
                self.move(size)

        return read

    def move(self, size: float) -> None:
        self.misses += self.seen * size / LINE_BYTES


def test_a_counter_of_the_last_cache_is_trusted():
    cache = Cache()
    trust(cache.count, CACHE, cache.reader)


@pytest.mark.parametrize(
    ("cache", "saw"),
    [
        (Cache(holds=1 << 20), "100% of a buffer of 4 times its size and 100% of one of 1/8"),  # an earlier cache
        (Cache(seen=0.0), "0% of a buffer"),  # a virtual machine that always answers 0
        (Cache(seen=0.1), "10% of a buffer"),  # prefetched lines are not counted
        (Cache(seen=5.0), "500% of a buffer"),  # some other event
    ],
)
def test_a_counter_of_anything_else_is_not(cache, saw):
    with pytest.raises(Unavailable, match="does not count misses of the last cache") as refused:
        trust(cache.count, CACHE, cache.reader)
    assert saw in str(refused.value)


def test_without_the_size_of_the_cache_no_counter_can_be_tried():
    with pytest.raises(Unavailable, match="size of the last cache is unknown"):
        trust(Cache().count, None, Cache().reader)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOENT, "most virtual machines offer none"),
        (errno.EOPNOTSUPP, "most virtual machines offer none"),
        (errno.EACCES, "kernel.perf_event_paranoid is 4"),
        (errno.EPERM, "kernel.perf_event_paranoid is 4"),
    ],
)
def test_a_refusal_says_why(code, said, tmp_path):
    folder = tmp_path / "proc/sys/kernel"
    folder.mkdir(parents=True)
    (folder / "perf_event_paranoid").write_text("4\n")
    text = counter._refusal(code, tmp_path)
    assert f"errno {code}" in text
    assert said in text


def test_the_system_call_counts_what_happens_or_says_why_it_cannot():
    """The kernel's own clock (type 1, number 1) goes through the same call as the processor's counters."""
    try:
        with cache_misses((1, 1)) as count:
            before = count()
            sum(range(100_000))
            assert 1e4 < count() - before < 60e9  # nanoseconds
    except Unavailable as refused:
        assert "errno" in str(refused) or sys.platform in str(refused)
    with pytest.raises(Unavailable, match="errno"), cache_misses((1, 9999)):
        pass


def test_other_systems_are_told_apart(monkeypatch):
    monkeypatch.setattr(counter.sys, "platform", "darwin")
    with pytest.raises(Unavailable, match="on Linux only"), cache_misses():
        pass


def test_a_counter_that_took_turns_is_scaled_up():
    assert counter._count(counter.struct.pack("QQQ", 50, 1000, 500)) == 100.0
    assert counter._count(counter.struct.pack("QQQ", 0, 1000, 0)) == 0.0


def test_each_call_is_counted_after_one_that_warms_up():
    cache, turns = Cache(), []

    def runner(name: str, sizes: Iterator[int]) -> Callable[[], object]:
        def run() -> None:
            turns.append(name)
            cache.move(next(sizes))

        return run

    runners = {"a": runner("a", iter((999, 1, 2, 3))), "b": runner("b", iter((999, 10, 20, 30)))}
    found = cpu.moved_bytes(cache.count, runners, 3)
    assert found == {"a": pytest.approx([1, 2, 3]), "b": pytest.approx([10, 20, 30])}
    assert turns == ["a", "b"] * 4


def test_the_scores_exceed_the_cache_within_bounds():
    assert [cpu.longest_length(size) for size in (None, 1 << 20, CACHE, 1 << 40)] == [1024, 1024, 4096, 8192]
    assert cpu.longest_length(CACHE, "float16") == 8192


@pytest.mark.parametrize("quick", [False, True])
def test_it_gives_rows_with_a_counter_and_the_claim_judges_them(quick, monkeypatch):
    """A planted counter sees what a cache of 32 MB would let through; the implementations are not run."""
    cache = Cache()

    @contextmanager
    def planted() -> Iterator[Callable[[], float]]:
        yield cache.count

    def runners(problem: Problem) -> dict[str, Callable[[], object]]:
        scores = 4 * problem.all_pairs
        naive = 6 * scores if scores > CACHE else 0
        return {
            "naive": lambda: cache.move(naive + problem.least_bytes),
            "sdpa_flash": lambda: cache.move(problem.least_bytes),
        }

    monkeypatch.setattr(cpu, "cache_misses", planted)
    monkeypatch.setattr(cpu, "cache_bytes", lambda device: CACHE)
    monkeypatch.setattr(cpu, "_reader", cache.reader)
    monkeypatch.setattr(cpu, "_runners", runners)
    rows = demonstrations.get("memory_traffic")(quick)
    lengths = [4096] if quick else [1024, 2048, 4096]
    assert [row["seqlen"] for row in rows if row["implementation"] == "naive"] == lengths
    assert all(row["reason"] is None for row in rows)
    assert set(rows[-1]["moved_bytes"]) == {Problem(seqlen=4096, num_heads=1).least_bytes}
    (answer,) = verdict("memory_traffic", rows)
    assert answer.verdict == "CONFIRMED"


def verdict(name: str, rows: list[dict]) -> list[Answer]:
    evidence = Evidence(kind="demonstration", name=name, rows=tuple(rows), reason=None, seconds=1.0)
    return claims.get("memory_traffic")().judge(Hearing(Reading([replace(run([]), evidence=(evidence,))])))


def test_the_real_implementations_are_run():
    """Counted by time, which passes in any of them."""
    problem = Problem(seqlen=64, num_heads=1)
    found = cpu.moved_bytes(time.perf_counter, cpu._runners(problem), 2)
    assert set(found) == set(cpu.COMPARED)
    assert all(len(values) == 2 and min(values) > 0 for values in found.values())
    cpu._reader(1 << 12)()


def test_here_it_counts_or_says_why_not():
    rows = demonstrations.get("memory_traffic")(True)
    assert [row["implementation"] for row in rows] == list(cpu.COMPARED)
    for row in rows:
        assert (row["moved_bytes"] is None) == bool(row["reason"])
        assert row["score_bytes"] == 4 * row["seqlen"] ** 2


HEADER = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'


def csv_lines(calls: int, kernels: int = 2, read: str = "1,000,000", write: str = "500") -> str:
    """What the profiler prints: a line per kernel and metric."""
    lines = ["==PROF== Connected to process 1", HEADER]
    for kernel in range(calls * kernels):
        for name, value in (("dram__bytes_read.sum", read), ("dram__bytes_write.sum", write)):
            lines.append(f'"{kernel}","1","k","{name}","byte","{value}"')
    return "\n".join([*lines, ""])


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """Put a program of the profiler's name on the PATH that prints ``text`` and exits with ``code``."""

    def install(text: str, code: int = 0) -> Path:
        program, seen = tmp_path / "ncu", tmp_path / "arguments"
        program.write_text(
            f"#!{sys.executable}\nimport sys\nopen({str(seen)!r}, 'w').write('\\n'.join(sys.argv[1:]))\n"
            f"print({text!r})\nsys.exit({code})\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return seen

    return install


def test_the_profilers_kernels_are_summed_by_call(ncu):
    seen = ncu(csv_lines(gpu.CALLS))
    assert gpu.profiled_bytes("naive", 8192) == [2_001_000.0] * gpu.CALLS
    arguments = seen.read_text().splitlines()
    assert arguments[arguments.index("--metrics") + 1] == gpu.METRICS
    assert arguments[-1].endswith("run_profiled('naive', 8192)")


def test_calls_with_more_bytes_are_told_apart():
    table = [HEADER, *(f'"{kernel}","1","k","m","byte","{kernel}"' for kernel in range(2 * gpu.CALLS))]
    assert gpu.bytes_by_call(table) == [4 * call + 1 for call in range(gpu.CALLS)]


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\nsee the link", 1, "ERR_NVGPUCTRPERM"),
        ("==PROF== Connected\n==WARNING== No kernels were profiled.", 0, "No kernels were profiled"),
        ("", 9, "exit code 9"),
        (csv_lines(1, kernels=gpu.CALLS + 1), 0, "not as many in each"),
    ],
)
def test_a_profiler_that_counts_nothing_says_why(ncu, text, code, why):
    ncu(text, code)
    with pytest.raises(Unavailable, match=why):
        gpu.profiled_bytes("naive", 8192)


def test_without_the_profiler_the_claim_is_inconclusive_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    rows = demonstrations.get("gpu_memory_traffic")(True)
    assert {row["device"] for row in rows} == {"cuda"}
    (answer,) = verdict("gpu_memory_traffic", rows)
    assert answer.verdict == "INCONCLUSIVE"
    assert answer.reason == "ncu, which reads a GPU's counters, is not on the PATH; it is part of the CUDA toolkit"


def test_a_profiler_that_hangs_is_given_up(monkeypatch, ncu):
    ncu("")

    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("ncu", gpu.LIMIT_S)

    monkeypatch.setattr(gpu.subprocess, "run", hang)
    with pytest.raises(Unavailable, match="gave no answer"):
        gpu.profiled_bytes("naive", 8192)
