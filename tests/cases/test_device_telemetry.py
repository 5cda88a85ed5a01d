"""Public cases O32, O33, O34: sensors of another GPU, no sensors at all, and sensors that see a GPU slow down."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from fake_nvml import FakeBoard, FakeNvml, fake_cuda, nvml_stub, with_library

from bench import nvml
from bench.clocks import Block
from bench.errors import Unavailable
from bench.nvml import Identity, cuda_identity, list_boards, visible_boards
from bench.record import Telemetry
from bench.results import read_run
from bench.telemetry import GPU_READINGS, Recorder
from bench.throttle import ThrottleGuard
from bench.timing import SamplingPlan, interleave

__all__ = ["nvml_stub"]

ROOT = Path(__file__).resolve().parents[2]

# ------------------------------------------------------------------- O32: CUDA's order is not NVML's order


def machine():
    """Four boards in the order of their slots: small, big, big, small. Their clocks tell them apart."""
    return [
        FakeBoard("GPU-5a000000-small", bus=0x10, sm_clock=[1100.0]),
        FakeBoard("GPU-b1600000-big", bus=0x20, sm_clock=[1201.0]),
        FakeBoard("GPU-b1611111-big", bus=0x30, sm_clock=[1302.0]),
        FakeBoard("GPU-5a011111-small", bus=0x40, sm_clock=[1403.0]),
    ]


FASTEST_FIRST = [1, 2, 0, 3]
VISIBLE = {
    # CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER: slots in CUDA's order
    "unset": (None, None, FASTEST_FIRST),
    "unset, by slot": (None, "PCI_BUS_ID", [0, 1, 2, 3]),
    "2,0 by slot": ("2,0", "PCI_BUS_ID", [2, 0]),
    "2,0 by speed": ("2,0", "FASTEST_FIRST", [FASTEST_FIRST[2], FASTEST_FIRST[0]]),
    "a full UUID": ("GPU-b1611111-big", None, [2]),
    "an abbreviated UUID": ("GPU-5a01", None, [3]),
    "two UUIDs": ("GPU-5a01,GPU-b160", None, [3, 1]),
    "nothing": ("", None, []),
    "-1": ("-1", None, []),
    "0,0": ("0,0", "PCI_BUS_ID", []),
    "an ambiguous UUID": ("GPU-b16", None, []),
    "no UUID at all": ("the big one", None, []),
}


def recorded(boards, identities) -> tuple[Telemetry, ...]:
    return Recorder(identities, opener=FakeNvml(*boards)).start().stop()[1:]


@pytest.mark.parametrize("by", ["UUID", "PCI address"])
@pytest.mark.parametrize("case", VISIBLE)
def test_o32_sensors_are_those_of_the_device_that_cuda_computes_on(case, by):
    *_, slots = VISIBLE[case]
    boards = machine()
    identities = cuda_identity("cuda", fake_cuda(*[boards[slot] for slot in slots], uuid=by == "UUID"))
    (gpu,) = recorded(boards, identities)
    if slots:
        assert gpu.device == boards[slots[0]].uuid
        assert gpu.readings["sm_clock_end_mhz"] == boards[slots[0]].sm_clock[0]
    else:
        assert gpu.device == "unknown"
        assert set(gpu.reasons) == set(GPU_READINGS)


@pytest.mark.parametrize("case", VISIBLE)
def test_o32_variables_alone_name_the_same_boards_or_none_for_certain(case):
    variable, order, slots = VISIBLE[case]
    boards, _ = list_boards(FakeNvml(*machine()))
    shown = visible_boards(variable, order, boards)
    if shown is None:
        assert order != "PCI_BUS_ID"
        assert variable is None or variable[0].isdigit()
    else:
        assert shown == [boards[slot] for slot in slots]


def test_o32_a_mig_instance_is_itself_or_unknown():
    instance = FakeBoard("MIG-77777777", sm_clock=[700.0])
    split = FakeBoard("GPU-5a000000-small", bus=0x10, mig=1, instances=(instance,), sm_clock=[1100.0])
    boards = [split, *machine()[1:]]
    (gpu,) = recorded(boards, cuda_identity("cuda", fake_cuda(instance)))
    assert (gpu.device, gpu.readings["sm_clock_end_mhz"]) == ("MIG-77777777", 700)
    split.instances = ()  # a container that may not see instances
    (gpu,) = recorded(boards, cuda_identity("cuda", fake_cuda(instance)))
    assert set(gpu.reasons) == set(GPU_READINGS)


@pytest.mark.parametrize("uuid", ["", "0", "GPU-", "MIG-", "5a000000", "GPU-5a000000"])
def test_o32_an_identity_that_is_not_a_whole_uuid_is_nobody(uuid):
    """A prefix is for people; between programs it would be a guess."""
    (gpu,) = recorded(machine(), (Identity(uuid),))
    assert set(gpu.reasons) == set(GPU_READINGS)


# ----------------------------------------------------------------------------- O33: no GPU, no Triton, no NVML

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
SWEEP = """
title = "tiny"
seconds_per_problem = 0.02
[axes]
num_heads = 1
head_dim = 16
seqlen = [64]
"""


def bench(tmp_path, *words, blocked=("triton",), library=None, fail=""):
    """The command line where these packages are missing and NVML is what ``library`` holds."""
    site = tmp_path / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(BLOCK.format(names=set(blocked)))
    environ = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "STUB_FAIL": fail}
    environ |= {"LD_LIBRARY_PATH": str(library)} if library else {}
    command = [sys.executable, "-m", "bench", *map(str, words)]
    return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)


def test_o33_the_list_needs_neither_triton_nor_nvml(tmp_path):
    done = bench(tmp_path, "list", "implementations", "--format", "json", blocked=("triton", "torch", "pynvml"))
    assert done.returncode == 0, done.stderr
    assert {"naive", "sdpa_cudnn", "triton_flash"} <= {row["name"] for row in json.loads(done.stdout)}


@pytest.mark.slow
def test_o33_a_run_goes_on_without_triton_and_sensors_and_keeps_the_reason(tmp_path, nvml_stub):
    """The real bindings against a library of another version than the driver."""
    (tmp_path / "tiny.toml").write_text(SWEEP)
    words = ["measure", "--sweep", "tiny.toml", "--device", "cpu", "-o", "runs"]
    for name in ("naive", "sdpa_cudnn", "triton_flash"):
        words += ["-i", f"^{name}$"]
    done = bench(tmp_path, *words, library=nvml_stub, fail="nvmlInitWithFlags=18")
    assert done.returncode == 0, done.stderr
    run = read_run(next((tmp_path / "runs").glob("*.jsonl")))
    assert run.header.environment.gpus is None
    assert "version mismatch" in run.header.environment.gpus_reason
    records = {record.implementation: record for record in run.records}
    assert records["naive"].status == "ok"
    memory = records["naive"].measurement.memory
    assert memory.peak_bytes > 0
    assert memory.allocated_bytes is memory.reserved_bytes is memory.device_used_bytes is None
    assert records["sdpa_cudnn"].status == "unavailable"
    assert "CUDA" in records["sdpa_cudnn"].reason
    assert records["triton_flash"].status == "unavailable"
    assert records["triton_flash"].reason.startswith("needs triton, which ships for Linux")
    assert done.stderr.count("version mismatch") <= 1  # never once per cell


MISSING = {
    "no bindings": (("triton", "torch", "pynvml"), "nvidia-ml-py is not installed"),
    "no library": (("triton", "torch"), "NVML Shared Library Not Found"),
}
ASK = """
import json
from bench.doctor import View, diagnose
from bench.environment import read_environment
from bench.nvml import Identity
from bench.telemetry import Recorder
gpu = Recorder((Identity("GPU-1"),)).start().stop()[1]
warnings = [d.seen for d in diagnose("cuda", "warm", View(torch=("2.13.0", "cuda 13.0"))) if d.name == "NVML"]
print(json.dumps([read_environment("cpu", "warm", None, None).gpus_reason, gpu.model_dump(), warnings]))
"""


@pytest.mark.parametrize("case", MISSING)
def test_o33_missing_sensors_are_one_warning_and_null_columns(tmp_path, case):
    blocked, reason = MISSING[case]
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    gpus_reason, gpu, warnings = with_library(tmp_path, BLOCK.format(names=set(blocked)) + ASK)
    assert reason in gpus_reason
    assert set(gpu["readings"].values()) == {None}
    assert set(gpu["reasons"].values()) == {gpus_reason}
    assert warnings == [f"no telemetry: {gpus_reason}"]


@pytest.mark.parametrize("code", [12, 18, 9, 999])
def test_o33_nvml_that_fails_gives_null_columns_and_not_zeros(code):
    """The real bindings turn these codes into exceptions; telemetry turns them into one reason for every column."""

    def opener():
        library = FakeNvml(FakeBoard("GPU-1"), nvmlInit=code)
        _, reason = nvml.ask(library, "nvmlInit")
        raise Unavailable(str(reason))

    (gpu,) = Recorder((Identity("GPU-1"),), opener=opener).start().stop()[1:]
    assert set(gpu.readings.values()) == {None}
    assert len(set(gpu.reasons.values())) == 1


# --------------------------------------------------------------------------------------------- O34: throttling

NS_PER_MS = 1_000_000


class ThrottledClock:
    """A block takes as long as its work at the board's clock of that moment."""

    most_calls = 1000
    name = "scripted"

    def __init__(self, board: FakeBoard) -> None:
        self.board = board

    def time_block(self, run, calls):
        run()
        return Block(round(calls * NS_PER_MS * 1965 / self.board.sm_clock[0]))


def measured(board, max_rounds, limit=10):
    """Samples of one implementation on ``board``, with the guard that watched."""
    guard = ThrottleGuard((Identity(board.uuid),), limit=limit, opener=FakeNvml(board))
    plan = SamplingPlan(warmup_calls=1, warmup_ns=0, min_rounds=max_rounds, max_rounds=max_rounds, isolated_blocks=0)
    runs = {"a": lambda: None}
    samples = interleave(runs, ThrottledClock(board), plan, random.Random(0), lambda name, block: block(), guard=guard)
    return samples["a"], guard


def falling():
    """1965 to 1580 MHz over 100 looks, as published."""
    return [1965 - 385 * i / 99 for i in range(100)]


def test_o34_a_clock_that_falls_is_a_doubt_about_the_samples():
    board = FakeBoard("GPU-1", sm_clock=falling(), sm_clock_max=1980)
    samples, guard = measured(board, 100)
    assert samples.ns
    assert samples.ns[-1] > 1.1 * samples.ns[0]  # throughput fell with the clock
    assert samples.discarded > 0
    assert "SM clock" in samples.discard_reason
    assert guard.doubt() is not None
    assert "SM clock" in guard.doubt()


def test_o34_a_counter_that_advances_all_the_time_is_a_doubt_as_well():
    board = FakeBoard("GPU-1", power_cap_count=list(range(0, 100_000, 500)))
    samples, guard = measured(board, 60)
    assert samples.discarded == 10
    assert len(samples.ns) == 50  # never an empty row
    assert guard.doubt() == "the GPU throttled in 60 of 60 rounds, 10 were discarded"


@pytest.mark.parametrize("counting", [False, True])
@pytest.mark.parametrize("limit", [0, 3, 10])
def test_o34_a_clock_that_is_stuck_costs_a_bounded_number_of_rounds_and_leaves_a_value_and_a_flag(counting, limit):
    counts = list(range(1000)) if counting else [0]
    board = FakeBoard("GPU-1", sm_clock=[0.57 * 1980], sm_clock_max=1980, power_cap_count=counts)
    samples, guard = measured(board, 40, limit)
    assert samples.discarded == (limit if counting else 0)
    assert len(samples.ns) == 40 - samples.discarded
    assert guard.doubt() is not None


def test_o34_a_steady_clock_raises_no_doubt():
    board = FakeBoard("GPU-1", sm_clock=[1755.0], sm_clock_max=1980)
    samples, guard = measured(board, 40)
    assert (samples.discarded, len(samples.ns), guard.doubt()) == (0, 40, None)


def test_o34_clocks_temperature_and_power_are_stored_with_the_window():
    board = FakeBoard("GPU-1", sm_clock=[1965.0, 1580.0], power_cap_count=[1, 2], reasons=0x4)
    (gpu,) = recorded([board], (Identity("GPU-1"),))
    wanted = {"sm_clock_start_mhz": 1965, "sm_clock_end_mhz": 1580, "temperature_c": 61, "power_w": 412.5}
    assert wanted.items() <= gpu.readings.items()
    assert gpu.readings["throttled_sw_power_cap"] is True
