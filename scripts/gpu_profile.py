"""Profile one causal forward and backward of SDPA flash and write the operator table: ``gpu_profile.py OUT_DIR``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.profiler import profile, supported_activities

from bench.calls import differentiable, make_step
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.problem import Problem


def main(folder: Path) -> None:
    """Write ``profile.txt``: time per operator and kernel of ten steps."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length, dtype = (4096, "bfloat16") if device == "cuda" else (512, "float32")
    problem = Problem(seqlen=length, num_heads=16, head_dim=128, dtype=dtype, mask="causal", direction="fwd_bwd")
    member = implementations.get("sdpa_flash")
    inputs = differentiable(problem, make_inputs(problem, member.layout, device))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    step.run()
    with profile(activities=supported_activities()) as profiler:
        for _ in range(10):
            step.run()
        if device == "cuda":
            torch.cuda.synchronize()
    table = profiler.key_averages().table(sort_by=f"self_{device}_time_total", row_limit=20)
    (folder / "profile.txt").write_text(f"sdpa_flash, {problem.key}, {device}\n{table}\n")
    sys.stdout.write(f"wrote {folder / 'profile.txt'}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
