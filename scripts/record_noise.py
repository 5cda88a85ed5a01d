"""Record what identical code measures on this machine, for tests that replay it: ``python scripts/record_noise.py``.

24 fresh processes measure three cells against themselves, idle and beside three busy processes. What is kept of each
process are 60 rounds of the durations of both arms. It takes about five minutes and wants a machine with nothing else
to do.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bench.case import same
from bench.paired import compare_pairs
from bench.problem import Problem
from bench.soundness._batches import busy_machine
from bench.timing import SamplingPlan

OUTPUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "noise.json"
PROCESSES, ROUNDS = 24, 60
PLAN = SamplingPlan(warmup_calls=10, warmup_ns=100_000_000, budget_ns=0, min_rounds=ROUNDS, max_rounds=ROUNDS)
CELLS = (
    (Problem(seqlen=256, num_heads=4), "sdpa_flash"),
    (Problem(seqlen=512, num_heads=4), "naive"),
    (Problem(seqlen=128, num_heads=4, mask="causal"), "sdpa_math"),
)


def main() -> None:
    """Record and write."""
    pairs = [same(problem, name) for problem, name in CELLS]
    recorded = []
    for loaded in (False, True):
        with tempfile.TemporaryDirectory() as folder, busy_machine(loaded):
            results = compare_pairs(
                pairs,
                folder=Path(folder),
                seed=2,
                plan=PLAN,
                looks=(PROCESSES,),
                say=lambda text: print(text, file=sys.stderr),
            )
        for name, result in results.items():
            processes = [{"calls": one.calls, "a": one.ns["a"], "b": one.ns["b"]} for one in result.samples]
            recorded.append({"cell": name, "loaded": loaded, "processes": processes})
    OUTPUT.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
