"""A claim that is false of an implementation is refuted, from the command line on."""

import json
import subprocess
import sys

import pytest

DROPS_A_BLOCK = """
import torch

from bench.implementation import AttentionOutput, Call, register_implementation


@register_implementation
class DropsABlock:
    name, summary, layout, devices = "drops_a_block", "Leaves the last 64 keys out.", "bhsd", ("cpu",)
    backward, expects = False, ()

    def version(self):
        return "0"

    def unsupported(self, problem, device):
        return None

    def predicted_peak_bytes(self, problem, device="cpu"):
        return None

    def prepare(self, problem, inputs):
        def run():
            kept = inputs.k.shape[2] - 64
            scores = inputs.q.float() @ inputs.k[:, :, :kept].float().transpose(-1, -2) * problem.softmax_scale
            out = torch.softmax(scores, -1) @ inputs.v[:, :, :kept].float()
            return AttentionOutput(out.to(inputs.q.dtype))

        return Call(run)
"""


def command(*words, folder):
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("broken", [True, False])
def test_an_implementation_that_drops_blocks_refutes_the_claim_on_errors(tmp_path, broken):
    own = tmp_path / "drops_a_block.py"
    own.write_text(DROPS_A_BLOCK)
    name = "drops_a_block" if broken else "online_softmax"
    axes = ["seqlen=128,256,512,1024", "num_heads=1", "dtype=bfloat16", "mask=full", "direction=fwd"]
    sets = [word for axis in axes for word in ("--set", axis)]
    code, _, said = command(
        "verify",
        "--sweep",
        "smoke",
        "--load",
        str(own),
        "-i",
        f"^(naive|{name})$",
        *sets,
        "-o",
        "runs",
        folder=tmp_path,
    )
    assert code == (1 if broken else 0), said
    code, out, said = command(
        "claims", "latest", "--results", "runs", "--only", "error_growth", "--format", "json", folder=tmp_path
    )
    answers = json.loads(out)
    assert code == (1 if broken else 0), said
    refuted = [answer for answer in answers if answer["verdict"] == "REFUTED"]
    assert bool(refuted) == broken
    assert all(name in answer["found"] for answer in refuted)
    assert all(answer["verdict"] == "CONFIRMED" for answer in answers) != broken
