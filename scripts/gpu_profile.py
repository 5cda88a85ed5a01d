"""Profile causal forward and backward of SDPA flash and of our kernels, an operator table each: ``gpu_profile.py OUT``.

What is never timed on the device at hand is not profiled either.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.profiler import profile, supported_activities

from bench.calls import differentiable, make_step
from bench.implementation import implementations, untimed
from bench.inputs import make_inputs
from bench.problem import Problem

NAMES = ("sdpa_flash", "triton_flash")


def main(folder: Path) -> None:
    """Write ``profile-NAME.txt`` for each: time per operator and kernel of ten steps."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length, dtype = (4096, "bfloat16") if device == "cuda" else (512, "float32")
    problem = Problem(seqlen=length, num_heads=16, head_dim=128, dtype=dtype, mask="causal", direction="fwd_bwd")
    for name in NAMES:
        why = untimed(implementations.get(name), problem, device)
        path = folder / f"profile-{name}.txt"
        path.write_text(f"{name}, {problem.key}, {device}\n{why or operators(name, problem, device)}\n")
        sys.stdout.write(f"wrote {path}\n")


def operators(name: str, problem: Problem, device: str) -> str:
    """The table of ten steps."""
    member = implementations.get(name)
    inputs = differentiable(problem, make_inputs(problem, member.layout, device))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    step.run()
    with profile(activities=supported_activities()) as profiler:
        for _ in range(10):
            step.run()
        if device == "cuda":
            torch.cuda.synchronize()
    return str(profiler.key_averages().table(sort_by=f"self_{device}_time_total", row_limit=20))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
