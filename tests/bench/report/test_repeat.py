"""The command that measures a cell again, where the run's own command takes no choice of cells."""

from __future__ import annotations

import shlex

import planted
import pytest

from bench.report.repeat import repeat_command, selects
from bench.sweep import load_sweep

AXES = (
    {"mask": "padding(0.5) & sliding_window(16)", "seqlen_q": 64, "num_heads_q": 4, "num_heads_kv": 2, "scale": -0.25},
    {"mask": "document(3)", "direction": "bwd", "dtype": "bfloat16", "head_dim_v": 32, "seed": 7},
    {"distribution": "outlier", "batch_size": 3},
)


@pytest.mark.parametrize("own", ["attention-bench claims --quick", "pytest benchmarks -k 'it's", ""])
@pytest.mark.parametrize("fields", AXES)
def test_the_problem_itself_is_described(own: str, fields: dict[str, object]) -> None:
    record = planted.record("a b", 128, **fields)  # type: ignore[arg-type]  # fields of a problem
    header = planted.run([record], allocator="default").header.model_copy(update={"command": own})
    assert not selects(header)
    words = shlex.split(repeat_command(record, header))
    assert words[:8] == ["attention-bench", "measure", "--sweep", "smoke", "--device", "cpu", "--allocator", "default"]
    assert words[8:10] == ["-i", "^a b$"]
    chosen = [value for option, value in zip(words[10::2], words[11::2], strict=True) if option == "--set"]
    assert len(chosen) == len(words[10::2])
    assert list(load_sweep("smoke", "cpu", chosen).problems) == [(record.problem, True)]


def test_loaded_files_and_the_kind_of_device_stay() -> None:
    record = planted.record("mine", 128)
    command = "attention-bench claims --load 'a b.py' --load=c.py"
    header = planted.run([record], device="NVIDIA H200").header.model_copy(update={"command": command})
    words = shlex.split(repeat_command(record, header))
    assert words[4:12] == ["--device", "cuda", "--allocator", "warm", "--load", "a b.py", "--load", "c.py"]


@pytest.mark.parametrize("verb", ["run", "measure", "verify"])
def test_verbs_that_take_a_choice_keep_their_command(verb: str) -> None:
    record = planted.record("a", 128)
    header = planted.run([record]).header.model_copy(update={"command": f"attention-bench {verb} --sweep gqa"})
    assert repeat_command(record, header) == f"attention-bench {verb} --sweep gqa -i '^a$' -p '^{record.problem.key}$'"
