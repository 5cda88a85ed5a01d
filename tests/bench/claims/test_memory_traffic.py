from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import run

from bench.claims import Answer, Hearing, Needs, Scope, claims
from bench.evidence import Evidence
from bench.figure_style import figure_style
from bench.plots import Reading

CLAIM = claims.get("memory_traffic")()
CACHE = 32 << 20
REFUSED = "perf_event_open was refused: No such file or directory (errno 2)"


def row(
    implementation: str,
    megabytes: float | None,
    *,
    seqlen: int = 4096,
    calls: int = 6,
    noise: float = 0.02,
    **more: Any,
) -> dict[str, Any]:
    """A row whose calls scatter evenly around ``megabytes``; None: not counted."""
    steps = [index / max(calls - 1, 1) - 0.5 for index in range(calls)]
    counted = None if megabytes is None else [megabytes * 1e6 * (1 + 2 * noise * step) for step in steps]
    plain = {
        "device": "cpu",
        "implementation": implementation,
        "dtype": "float32",
        "seqlen": seqlen,
        "score_bytes": 4 * seqlen**2,
        "least_bytes": 1024 * seqlen,
        "cache_bytes": CACHE,
        "moved_bytes": counted,
        "reason": REFUSED if counted is None else None,
    }
    return plain | more


def hearing(*rows: dict[str, Any], name: str = "memory_traffic") -> Hearing:
    evidence = Evidence(kind="demonstration", name=name, rows=rows, reason=None, seconds=1.0)
    return Hearing(Reading([replace(run([]), evidence=(evidence,))]))


def judge(*rows: dict[str, Any]) -> list[Answer]:
    return CLAIM.judge(hearing(*rows))


def beside(naive: dict[str, Any], other: dict[str, Any]) -> Answer:
    (answer,) = judge(naive, other)
    return answer


@pytest.mark.parametrize(
    ("megabytes", "noise", "verdict"),
    [
        (10, 0.02, "CONFIRMED"),
        (140, 0.02, "CONFIRMED"),
        (150, 0.02, "INCONCLUSIVE"),  # half, give or take
        (170, 0.02, "REFUTED"),
        (300, 0.02, "REFUTED"),  # blocks that do not stay in the cache
        (900, 0.02, "REFUTED"),
        (100, 0.6, "INCONCLUSIVE"),
    ],
)
def test_bytes_of_blocks_beside_those_of_naive(megabytes, noise, verdict):
    found = beside(row("naive", 300, noise=noise), row("flash", megabytes, noise=noise))
    assert found.verdict == verdict
    assert found.subject == "flash, cpu, float32, T=4096"
    assert "naive 300 MB" in found.found
    assert "4.19 MB must move" in found.found


def test_the_interval_holds_both_medians_at_their_worst():
    found = beside(row("naive", 100, noise=0.1), row("flash", 10, noise=0.1))
    assert "0.100x [0.0818, 0.122]" in found.found


def test_without_a_counter_nothing_is_decided_and_the_reason_is_told_once():
    (found,) = judge(row("naive", None), row("flash", None), row("other", None))
    assert found.verdict == "INCONCLUSIVE"
    assert found.reason == REFUSED
    assert "not counted" in found.found


@pytest.mark.parametrize(
    ("naive", "other", "why"),
    [
        (row("naive", 300), row("flash", None), "refused"),
        (row("naive", None), row("flash", 10), "refused"),
        (row("naive", 300, calls=4), row("flash", 10, calls=4), "needs 6 calls, got 4"),
        (row("naive", 300), row("flash", 10, calls=3), "needs 6 calls, got 3"),
        (row("naive", 0), row("flash", 0), "saw nothing"),
        (row("naive", 300, seqlen=2048), row("flash", 10, seqlen=2048), "may fit into the last cache"),
        (row("naive", 300, cache_bytes=None), row("flash", 10, cache_bytes=None), "may fit into the last cache"),
    ],
)
def test_too_little_decides_nothing(naive, other, why):
    found = beside(naive, other)
    assert found.verdict == "INCONCLUSIVE"
    assert why in found.reason


def test_without_naive_there_is_nothing_to_hold_against():
    (found,) = judge(row("flash", 10))
    assert found.verdict == "INCONCLUSIVE"
    assert found.reason == "no row of naive"


def test_the_longest_sequence_decides():
    """At the short one the cache held the scores, and blocks saved nothing."""
    short = [row("naive", 1, seqlen=1024), row("flash", 1, seqlen=1024)]
    assert [one.verdict for one in judge(*short, row("naive", 300), row("flash", 10))] == ["CONFIRMED"]


@pytest.mark.parametrize(("device", "name"), [("cpu", "memory_traffic"), ("cuda", "gpu_memory_traffic")])
def test_each_device_has_a_counter_of_its_own(device, name):
    assert CLAIM.needs(Scope(device)) == Needs(demonstrations=(name,))
    (found,) = CLAIM.judge(hearing(row("naive", 300, device=device), row("flash", 10, device=device), name=name))
    assert found.verdict == "CONFIRMED"
    assert found.rows == (name,)


def test_nothing_counted_is_no_figure():
    heard = hearing(row("naive", None), row("flash", None))
    assert CLAIM.draw(heard, CLAIM.judge(heard)) == []


@pytest.mark.parametrize("lengths", [(4096,), (1024, 2048, 4096)])
@pytest.mark.parametrize(("megabytes", "title"), [(10, "less than half"), (300, "REFUTED")])
def test_the_figure_says_what_was_found(lengths, megabytes, title):
    rows = [row("naive", 300, seqlen=n) for n in lengths] + [row("flash", megabytes, seqlen=n) for n in lengths]
    heard = hearing(*rows)
    with figure_style():
        (drawing,) = CLAIM.draw(heard, CLAIM.judge(heard))
    assert title in " ".join(drawing.figure.get_suptitle().split())
    assert "flash, cpu, float32, T=4096" in drawing.alt
