"""The table of configurations, compiling it without a device, and the search for something faster."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton", reason="Triton ships for Linux alone")
import triton

from bench.errors import Unavailable
from implementations.triton_flash import autotune, launch, tiles
from implementations.triton_flash.launch import Mask, blocks_for
from implementations.triton_flash.sources import kernel_sources
from implementations.triton_flash.tuning import (
    CONFIGURATIONS,
    TARGETS,
    Blocks,
    configuration,
    padded_width,
)

DIRECTIONS = ("fwd", "split", "bwd_keys", "bwd_queries")


def test_there_are_at_most_sixty_configurations_and_no_two_for_one_thing():
    names = [line.name for line in CONFIGURATIONS]
    assert len(names) == len(set(names)) <= 60


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_width_finds_the_narrowest_line_that_holds_it(target, direction, dtype):
    for width in (1, 16, 64, 80, 128, 129, 256):
        line = configuration(target, direction, dtype, padded_width(width))
        narrower = [
            other
            for other in CONFIGURATIONS
            if (other.target, other.direction, other.dtype) == (line.target, line.direction, line.dtype)
            and other.head_dim < line.head_dim
        ]
        assert line.direction == direction
        assert line.head_dim >= width > max((other.head_dim for other in narrower), default=0)


COMPILE = """
import sys
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from implementations.triton_flash.sources import kernel_sources
from implementations.triton_flash.tuning import CONFIGURATIONS, TARGETS

for line in CONFIGURATIONS:
    if line.name in sys.argv[1:]:
        for source in kernel_sources(line):
            kernel = ASTSource(source.function, source.signature, source.constexprs, source.attrs)
            compiled = compile(kernel, target=GPUTarget(*TARGETS[line.target]), options=dict(source.options))
            ptx = compiled.asm["ptx"]
            print(line.name, source.function.__name__, "wgmma" in ptx, "cp.async.cg.shared.global" in ptx)
"""


@pytest.mark.slow
def test_configurations_compile_without_a_device_and_use_hoppers_matrix_unit(tmp_path):
    """In a process of its own, where the kernels are not interpreted."""
    names = [f"sm_90-{direction}-half-64" for direction in ("fwd", "bwd_keys", "bwd_queries")]
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, *names], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "sm_90-fwd-half-64 attention_forward True True",
        "sm_90-bwd_keys-half-64 attention_backward_keys True True",
        "sm_90-bwd_queries-half-64 attention_backward_queries True True",
        "sm_90-bwd_queries-half-64 attention_delta False False",
    ]


@pytest.mark.skipif(not tiles.INTERPRETED, reason="the kernels of this process are compiled")
def test_interpreted_kernels_are_not_offered_for_compilation():
    with pytest.raises(Unavailable, match="TRITON_INTERPRET=0"):
        kernel_sources(CONFIGURATIONS[0])


# Autotuning, with a stopwatch that knows the answer.

TABLE = Blocks(128, 64, 8, 3)
FASTER = Blocks(64, 32, 4, 2)


def stopwatch(times, calls=None):
    def measure(blocks):
        if calls is not None:
            calls.append(blocks)
        answer = times.get(blocks, 9.0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return measure


def test_the_fastest_is_found_kept_and_not_measured_again(tmp_path):
    path, calls = tmp_path / "deep" / "cache.json", []
    tried = list(autotune.candidates("fwd", TABLE))
    assert tried[0] == TABLE and len(set(tried)) == len(tried)
    assert autotune.best("key", tried, stopwatch({FASTER: 1.0}, calls), path) == FASTER
    assert calls == tried
    assert autotune.best("key", tried, stopwatch({}, calls), path) == FASTER
    assert calls == tried, "read from disk"
    assert autotune.best("other key", [TABLE], stopwatch({}), path) == TABLE
    kept = json.loads(path.read_text())
    assert kept["key"] == {"blocks": [64, 32, 4, 2], "latency_ms": 1.0, "tried": len(tried)}
    assert set(kept) == {"key", "other key"}


def test_what_does_not_fit_the_device_is_left_out(tmp_path):
    too_large = triton.runtime.errors.OutOfResources(300_000, 232_448, "shared memory")
    measure = stopwatch({FASTER: too_large})
    assert autotune.best("key", [TABLE, FASTER], measure, tmp_path / "cache.json") == TABLE
    with pytest.raises(triton.TritonError):
        autotune.best("other", [FASTER, TABLE], measure, tmp_path / "cache.json")
    broken = stopwatch({FASTER: RuntimeError("CUDA error: an illegal memory access was encountered")})
    with pytest.raises(RuntimeError, match="illegal"):
        autotune.best("third", [TABLE, FASTER], broken, tmp_path / "cache.json")


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_an_unreadable_cache_is_written_anew(content, tmp_path):
    path = tmp_path / "cache.json"
    path.write_text(content)
    assert autotune.best("key", [TABLE], stopwatch({}), path) == TABLE
    assert set(json.loads(path.read_text())) == {"key"}


def test_the_key_changes_with_whatever_may_change_the_answer():
    def tensors(*size, dtype=torch.float16):
        return tuple(torch.empty(size, dtype=dtype) for _ in range(3))

    base = ("fwd", tensors(1, 2, 8, 4), Mask(), 1.0)
    others = [
        ("bwd_keys", *base[1:]),
        ("fwd", tensors(1, 2, 9, 4), *base[2:]),
        ("fwd", tensors(1, 2, 8, 4, dtype=torch.bfloat16), *base[2:]),
        ("fwd", tuple(t.transpose(1, 2).contiguous().transpose(1, 2) for t in base[1]), *base[2:]),
        (*base[:2], Mask(right=0), 1.0),
        (*base[:2], Mask(right=1), 1.0),
        (*base[:2], Mask(keys=torch.zeros(2, 1, dtype=torch.int32)), 1.0),
        (*base[:3], -1.0),
        (*base[:3], 0.0),
    ]
    keys = {autotune.key_of(*arguments) for arguments in (base, *others)}
    assert len(keys) == 1 + len(others)
    assert autotune.key_of(*base[:3], 2.0) == autotune.key_of(*base), "the size of the scale changes nothing"


def test_scratch_has_the_strides_and_neither_the_memory_nor_the_random_numbers_of_the_caller():
    given = torch.zeros(2, 6, 4, 3).transpose(1, 2)
    before = torch.get_rng_state()
    made = autotune.scratch(given)
    assert (made.shape, made.stride(), made.dtype) == (given.shape, given.stride(), given.dtype)
    assert made.data_ptr() != given.data_ptr() and made.std() > 0.5 and not given.any()
    assert torch.equal(torch.get_rng_state(), before)
    assert autotune.scratch(torch.zeros(1).expand(3)).tolist() == [1.0] * 3


def test_blocks_on_trial_come_first_and_a_cpu_is_never_tuned(monkeypatch):
    monkeypatch.setenv("TRITON_FLASH_AUTOTUNE", "1")
    q = torch.zeros(1, 1, 4, 4)
    monkeypatch.setattr(autotune, "best", None)
    if not torch.cuda.is_available():
        assert blocks_for("fwd", q, q, q, 1.0, Mask()).num_warps == 1
    seen = []
    monkeypatch.setattr(autotune, "milliseconds", lambda run: (run(), 2.5)[1])
    assert launch._time("fwd", lambda: seen.append(blocks_for("fwd", q, q, q, 1.0, Mask())), TABLE) == 2.5
    assert seen == [TABLE]
    assert not launch.TRIED
