from __future__ import annotations

import platform
from importlib import import_module

import pytest

from bench.demonstrations import demonstrations

module = import_module("bench.demonstrations.page_faults")


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc")
def test_default_allocator_faults_the_pages_of_the_scores_anew_and_the_warm_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LENGTHS", (128, 1456))
    rows = demonstrations.get("page_faults")(True)
    assert [(row["allocator"], row["seqlen"]) for row in rows] == [
        (name, length) for name in ("warm", "default") for length in (128, 1456)
    ]
    assert [row["score_pages"] for row in rows[:2]] == [2 * 4 * length**2 * 4 / 4096 for length in (128, 1456)]
    warm, default = rows[1], rows[3]
    assert warm["page_faults"] < 0.02 * warm["score_pages"]
    assert default["page_faults"] == pytest.approx(default["score_pages"], rel=0.1)
    assert all(row["latency_ms"] > 0 for row in rows)


def test_a_process_that_ends_without_rows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def recv(self) -> None:
            raise EOFError

    monkeypatch.setattr(module, "start", lambda *_, **__: (None, Ended()))
    monkeypatch.setattr(module, "end_worker", lambda _: None)
    with pytest.raises(Exception, match="process with the warm allocator must give its rows, got none"):
        demonstrations.get("page_faults")(True)
