"""Digests and operators as a profile would hold them, with figures that can be checked by hand."""

from __future__ import annotations

from bench.digest import Digest, Lifetime, MemoryTimeline, Stage, Tensor, Tool
from bench.header import Ceilings
from bench.problem import Problem

CEILINGS = Ceilings(flop_per_s={"float32": 100e9}, bytes_per_s=40e9, memory_bytes_per_s=10e9, cache_bytes=32 << 20)


def stage(name, time_ms, total_ms=100.0, **fields):
    defaults = {
        "name": name,
        "time_ms": time_ms,
        "share": time_ms / total_ms,
        "calls": 2,
        "operators": (f"{name}_operator",),
        "flop": 1_000_000,
        "moved_bytes": 500_000,
        "roof": "bandwidth",
        "roof_fraction": 0.5,
    }
    return Stage(**(defaults | fields))


def overhead(time_ms, total_ms=100.0):
    return stage("overhead", time_ms, total_ms, flop=0, moved_bytes=0, roof="overhead", roof_fraction=None, reason="-")


def memory(problem):
    matrix = problem.all_pairs * problem.element_bytes
    out = problem.output_bytes
    return MemoryTimeline(
        method="allocator_events",
        peak_bytes=2 * matrix + out,
        peak_ms=70.0,
        end_ms=100.0,
        output_bytes=out,
        owners=(
            Tensor(name="scores", peak_bytes=matrix, count=1),
            Tensor(name="weights", peak_bytes=matrix, count=1),
            Tensor(name="out", peak_bytes=out, count=1),
        ),
        lifetimes=(
            Lifetime(owner="scores", operator="bmm", size_bytes=matrix, start_ms=0, stop_ms=90, at_peak=True),
            Lifetime(owner="weights", operator="_softmax", size_bytes=matrix, start_ms=40, stop_ms=90, at_peak=True),
            Lifetime(owner="out", operator="bmm", size_bytes=out, start_ms=70, stop_ms=None, at_peak=True),
        ),
    )


SHARES = (stage("softmax", 50.0), stage("score product", 30.0), stage("value product", 15.0), overhead(5.0))


def digest(seqlen=1024, implementation="naive", stages=None, **fields):
    problem = fields.pop("problem", None) or Problem(seqlen=seqlen)
    defaults = {
        "problem": problem,
        "implementation": implementation,
        "implementation_version": "2.13.0",
        "device": "cpu",
        "device_name": "cpu",
        "threads": 2,
        "steps": 3,
        "total_ms": 100.0,
        "unprofiled_ms": 98.0,
        "stages": SHARES if stages is None else stages,
        "operators": 6,
        "launches": None,
        "ceilings": CEILINGS,
        "memory": memory(problem),
        "tools": (
            Tool(name="torch", status="done", files={"trace.json.gz": "open in Perfetto"}),
            Tool(name="ncu", status="unavailable", reason="no program ncu is found on PATH", fix="install it"),
            Tool(name="nsys", status="not_asked"),
        ),
    }
    return Digest(**(defaults | fields))
