"""Each condition is planted alone and found alone; a clean machine has nothing to report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_nvml import FakeBoard, FakeNvml, nvml_stub, with_library

from bench.doctor import View, diagnose, fatal_reason
from bench.errors import Unavailable

__all__ = ["nvml_stub"]

GIB = 1 << 20
"""Kibibytes, the unit of ``/proc/meminfo``."""
CLEAN = {
    "proc/loadavg": "0.05 0.10 0.10 1/300 4242",
    "proc/stat": "cpu  1000 0 500 98000 100 0 0 10 0 0",
    "proc/meminfo": f"MemTotal: {32 * GIB} kB\nMemAvailable: {30 * GIB} kB\nSwapTotal: {GIB} kB\nSwapFree: {GIB} kB",
    "proc/self/status": "Name:\tpython\nTracerPid:\t0\n",
    "proc/self/cgroup": "0::/",
    "sys/fs/cgroup/cpu.max": "max 100000",
    "sys/fs/cgroup/memory.max": "max",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "1",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/class/power_supply/AC/type": "Mains",
}
DRIVER = {"proc/driver/nvidia/gpus/0000:17:00.0/information": "Model: Card"}


def no_library():
    raise Unavailable("NVML: NVML Shared Library Not Found")


@pytest.fixture
def view(tmp_path):
    """A clean machine with four cores, some files changed (None removes one)."""

    def make(files=None, **fields):
        for name, content in (CLEAN | (files or {})).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_text(content + "\n")
        defaults = {
            "root": tmp_path,
            "environ": {},
            "cores": 4,
            "interpreter": frozenset(),
            "torch": ("2.13.0+cpu", "cpu"),
            "opener": no_library,
            "free_bytes": lambda folder: 10**12,
        }
        return View(**(defaults | fields))

    return make


def reported(view, device="cpu", allocator="warm"):
    return {d.name: d for d in diagnose(device, allocator, view) if d.level != "fine"}


def test_a_clean_machine_has_nothing_to_report(view):
    assert reported(view()) == {}
    assert fatal_reason(diagnose("cpu", "warm", view())) is None


def test_every_report_says_what_was_seen_and_what_to_do(view):
    for diagnosis in reported(view({"proc/loadavg": "9 9 9 9/9 1"}, environ={"OMP_NUM_THREADS": "99"})).values():
        assert diagnosis.seen
        assert diagnosis.fix.endswith(".")


def zone(**supply):
    return {f"sys/class/power_supply/BAT0/{name}": value for name, value in supply.items()}


MEMORY = f"MemTotal: {32 * GIB} kB\nMemAvailable: {30 * GIB} kB\n"
FILES = {
    "busy neighbours": ("load", "warning", {"proc/loadavg": "2.00 1.00 0.50 1/300 4242"}),
    "a neighbour that just began": ("load", "warning", {"proc/loadavg": "0.00 0.00 0.00 4/300 4242"}),
    "stolen time": ("steal", "warning", {"proc/stat": "cpu  1000 0 500 90000 100 0 0 9000 0 0"}),
    "a governor that saves power": (
        "frequency governor",
        "warning",
        {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"},
    ),
    "one core that saves power": (
        "frequency governor",
        "warning",
        {"sys/devices/system/cpu/cpu3/cpufreq/scaling_governor": "ondemand"},
    ),
    "turbo of Intel": ("turbo", "note", {"sys/devices/system/cpu/intel_pstate/no_turbo": "0"}),
    "turbo of others": (
        "turbo",
        "note",
        {"sys/devices/system/cpu/intel_pstate/no_turbo": None, "sys/devices/system/cpu/cpufreq/boost": "1"},
    ),
    "a slow clock": (
        "clock source",
        "warning",
        {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
    ),
    "a laptop on battery": ("power supply", "warning", zone(type="Battery", status="Discharging")),
    "a quota": ("processor quota", "warning", {"sys/fs/cgroup/cpu.max": "150000 100000"}),
    "a quota of a group within": (
        "processor quota",
        "warning",
        {"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "200000 100000"},
    ),
    "a quota of version 1": (
        "processor quota",
        "warning",
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/docker/123",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    ),
    "little memory": (
        "memory",
        "warning",
        {"proc/meminfo": f"MemTotal: {32 * GIB} kB\nMemAvailable: {GIB} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB"},
    ),
    "a memory limit": ("memory limit", "note", {"sys/fs/cgroup/memory.max": str(4 << 30)}),
    "a memory limit of version 1": (
        "memory limit",
        "note",
        {"proc/self/cgroup": "7:memory:/x", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": str(4 << 30)},
    ),
    "swap in use": ("swap", "warning", {"proc/meminfo": f"{MEMORY}SwapTotal: {GIB} kB\nSwapFree: 0 kB"}),
    "a debugger": ("debugging", "warning", {"proc/self/status": "TracerPid:\t77"}),
}


@pytest.mark.parametrize("case", FILES)
def test_a_planted_file_is_found_alone(view, case):
    name, level, files = FILES[case]
    assert {n: d.level for n, d in reported(view(files)).items()} == {name: level}


HARMLESS = {
    "the reader and one more": {"proc/loadavg": "0.20 0.20 0.20 2/300 4242"},
    "the battery of a mouse": zone(type="Battery", status="Discharging", scope="Device"),
    "a battery that charges": zone(type="Battery", status="Charging"),
    "no limit of version 1": {
        "proc/self/cgroup": "7:memory:/\n4:cpu:/",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    },
    "a quota above the affinity": {"sys/fs/cgroup/cpu.max": "800000 100000"},
    "a clock of a virtual machine": {
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "kvm-clock",
    },
    "nothing at all": dict.fromkeys(CLEAN),
    "nonsense": dict.fromkeys(CLEAN, "\x00 nonsense :: 9"),
}


@pytest.mark.parametrize("case", sorted(HARMLESS.keys() - {"nonsense"}))
def test_what_spoils_nothing_is_not_reported(view, case):
    assert reported(view(HARMLESS[case])) == {}


def test_files_that_make_no_sense_break_nothing(view):
    assert set(reported(view(HARMLESS["nonsense"]))) <= {"frequency governor"}


VARIABLES = {
    "too many threads": ("threads", "warning", {"OMP_NUM_THREADS": "8"}),
    "too many threads of MKL": ("threads", "warning", {"MKL_NUM_THREADS": "5"}),
    "fewer threads": ("threads", "note", {"OMP_NUM_THREADS": "2"}),
    "no number of threads": ("threads", "warning", {"OMP_NUM_THREADS": "all"}),
    "zero threads": ("threads", "warning", {"OPENBLAS_NUM_THREADS": "0"}),
    "bound threads": ("thread binding", "note", {"KMP_AFFINITY": "granularity=fine,compact,1,0"}),
    "a debugging allocator of Python": ("debugging", "warning", {"PYTHONMALLOC": "malloc_debug"}),
    "development mode": ("debugging", "warning", {"PYTHONDEVMODE": "1"}),
    "torch's logs": ("debugging", "warning", {"TORCH_LOGS": "+dynamo"}),
    "another allocator": ("allocator", "warning", {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}),
    "tunables": ("allocator", "warning", {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=0"}),
    "a variable beside the setting": ("allocator", "warning", {"MALLOC_ARENA_MAX": "1"}),
    "a variable that the setting replaces": ("allocator", "note", {"MALLOC_MMAP_MAX_": "65536"}),
    "a sanitizer": ("memory checker", "fatal", {"LD_PRELOAD": "/usr/lib/gcc/x86_64-linux-gnu/12/libasan.so"}),
    "a heap profiler": ("memory checker", "fatal", {"LD_PRELOAD": "/opt/heaptrack/libheaptrack_preload.so"}),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_a_planted_variable_is_found_alone(view, case):
    name, level, environ = VARIABLES[case]
    assert {n: d.level for n, d in reported(view(environ=environ)).items()} == {name: level}


@pytest.mark.parametrize(
    "environ",
    [
        {"OMP_NUM_THREADS": "4"},
        {"OMP_NUM_THREADS": "4,1"},
        {"CUDA_LAUNCH_BLOCKING": "1", "TRITON_INTERPRET": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},  # on a CPU
        {"PYTHONMALLOC": "pymalloc", "PYTHONDEVMODE": ""},
        {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184"},  # what the setting says itself
        {"LD_PRELOAD": "/usr/lib/libgomp.so.1"},
    ],
)
def test_variables_that_spoil_nothing_are_not_reported(view, environ):
    assert reported(view(environ=environ)) == {}


def test_the_default_allocator_is_glibcs_own_only_without_variables(view):
    planted = view(environ={"MALLOC_MMAP_MAX_": "0"})
    assert reported(planted, allocator="default")["allocator"].level == "warning"


GPU_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": "CUDA launches",
    "TRITON_INTERPRET": "Triton",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "CUDA caching allocator",
}
CUDA = ("2.13.0", "cuda 13.0")


def gpu(view, board=None, device="cuda", **fields):
    board = board or FakeBoard("GPU-1", reasons=0x2)
    return reported(view(DRIVER, torch=CUDA, **({"opener": FakeNvml(board)} | fields)), device)


def test_a_clean_gpu_has_nothing_to_report(view):
    assert gpu(view) == {}


@pytest.mark.parametrize("device", ["cuda", None])
@pytest.mark.parametrize("variable", GPU_VARIABLES)
def test_what_makes_gpu_timing_worthless_is_fatal_on_a_gpu(view, variable, device):
    told = gpu(view, environ={variable: "1"}, device=device)
    assert {n: d.level for n, d in told.items()} == {GPU_VARIABLES[variable]: "fatal"}
    reason = fatal_reason(tuple(told.values()))
    assert variable in reason
    assert f"Unset {variable}" in reason


@pytest.mark.parametrize("variable", GPU_VARIABLES)
@pytest.mark.parametrize("value", ["", "0"])
def test_a_switch_that_is_off_is_no_switch(view, variable, value):
    assert gpu(view, environ={variable: value}) == {}


def test_a_profiler_in_a_cuda_program_is_a_warning(view):
    told = gpu(view, environ={"CUDA_INJECTION64_PATH": "/opt/libToolsInjection64.so"})
    assert {n: d.level for n, d in told.items()} == {"CUDA injection": "warning"}


BOARDS = {
    "other processes": ("warning", "2 other processes", {"pids": (os.getpid(), 1, 2)}),
    "persistence off": ("note", "persistence", {"persistence": 0}),
    "unlocked clocks": ("note", "no sign of locked clocks", {"reasons": 0x0}),
    "power cap": ("warning", "throttled now (0x6 set_by_user sw_power_cap, 61.0 °C)", {"reasons": 0x6}),
    "heat": ("warning", "throttled now", {"reasons": 0x42}),
    "power brake": ("warning", "throttled now", {"reasons": 0x82}),
    "MIG": ("note", "MIG is on", {"mig": 1}),
}


@pytest.mark.parametrize("case", BOARDS)
def test_a_planted_condition_of_a_board_is_found_alone(view, case):
    level, seen, fields = BOARDS[case]
    told = gpu(view, FakeBoard("GPU-1", **({"reasons": 0x2} | fields)))
    assert {n: d.level for n, d in told.items()} == {"GPU GPU-1": level}
    assert seen in told["GPU GPU-1"].seen


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetPersistenceMode",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetMigMode",
    ],
)
def test_a_board_that_does_not_say_is_not_blamed(view, call):
    assert gpu(view, FakeBoard("GPU-1", reasons=0x2, failing={call: 3})) == {}


def test_only_boards_that_will_be_used_are_looked_at(view):
    library = FakeNvml(FakeBoard("GPU-1", pids=(1,)), FakeBoard("GPU-2", pids=(1,)))
    assert set(gpu(view, opener=library)) == {"GPU GPU-1", "GPU GPU-2"}
    assert set(gpu(view, opener=library, environ={"CUDA_VISIBLE_DEVICES": "GPU-2"})) == {"GPU GPU-2"}
    assert set(gpu(view, opener=library, environ={"CUDA_VISIBLE_DEVICES": "1"})) == {"GPU GPU-1", "GPU GPU-2"}
    order = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert set(gpu(view, opener=library, environ=order)) == {"GPU GPU-2"}
    assert gpu(view, opener=library, environ={"CUDA_VISIBLE_DEVICES": ""}) == {}
    assert library.open == 0


def test_a_lost_board_is_one_warning_and_the_others_are_looked_at(view):
    library = FakeNvml(FakeBoard("GPU-1", failing={"nvmlDeviceGetUUID": 15}), FakeBoard("GPU-2", persistence=0))
    assert {n: d.level for n, d in gpu(view, opener=library).items()} == {"NVML": "warning", "GPU GPU-2": "note"}


REASONS = {
    "NVML: NVML Shared Library Not Found": "libnvidia-ml.so.1",
    "NVML: RM has detected an NVML/RM version mismatch.": "Restart",
    "NVML: Driver Not Loaded": "modprobe",
    "nvidia-ml-py is not installed (No module named 'pynvml')": "pip install nvidia-ml-py",
    "module pynvml must be that of nvidia-ml-py, got the old package": "pip uninstall pynvml",
    "NVML: Unknown Error": "nvidia-smi",
}


@pytest.mark.parametrize("reason", REASONS)
def test_nvml_that_fails_is_one_warning_with_its_remedy_on_a_machine_with_a_gpu(view, reason):
    def opener():
        raise Unavailable(reason)

    told = gpu(view, opener=opener)
    assert {n: d.level for n, d in told.items()} == {"NVML": "warning"}
    assert reason in told["NVML"].seen
    assert REASONS[reason] in told["NVML"].fix


@pytest.mark.parametrize("reason", REASONS)
def test_nvml_that_fails_is_no_concern_of_a_machine_without_a_gpu(view, reason):
    def opener():
        raise Unavailable(reason)

    assert reported(view(opener=opener)) == reported(view(opener=opener), device=None) == {}


def test_a_torch_without_cuda_leaves_the_gpu_unused(view):
    clean = FakeNvml(FakeBoard("GPU-1", reasons=0x2))
    told = reported(view(DRIVER, opener=clean), device=None)
    assert {n: d.level for n, d in told.items()} == {"torch": "warning"}
    assert "on a machine with a GPU" in told["torch"].seen


@pytest.mark.parametrize("torch", [("2.10.1", "cuda 12.8"), ("1.13.1+cpu", "cpu"), (None, None)])
def test_an_old_or_missing_torch(view, torch):
    assert {n: d.level for n, d in reported(view(torch=torch)).items()} == {"torch": "warning"}


@pytest.mark.parametrize("torch", [("2.11.0", "cpu"), ("3.0.0a0+git123", "cpu"), ("nightly", None)])
def test_a_torch_that_is_new_enough(view, torch):
    assert reported(view(torch=torch)) == {}


def test_a_disk_that_is_nearly_full(view):
    told = reported(view(free_bytes=lambda folder: 5_000_000, results=Path("elsewhere")))
    assert {n: d.level for n, d in told.items()} == {"disk": "warning"}
    assert "5.00 MB free at elsewhere" in told["disk"].seen


def test_an_interpreter_that_is_slowed_down(view):
    told = reported(view(interpreter=frozenset({"a debug build of Python"})))
    assert told["debugging"].seen == "a debug build of Python"


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        (["-X", "dev"], "development mode"),
        (["-c", "import sys; sys.settrace(lambda *_: None)"], "a trace function"),
        (["-c", "import sys; sys.setprofile(lambda *_: None)"], "a profile function"),
    ],
)
def test_the_real_interpreter_is_asked(options, seen):
    program = "from bench.doctor import View; print(sorted(View().interpreter))"
    if "-c" in options:
        program = f"{options[1]}; {program}"
        options = []
    command = [sys.executable, *options, "-W", "ignore", "-c", program]
    assert seen in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_this_machine_is_diagnosed_without_importing_torch():
    program = (
        "import sys; from bench.doctor import View, diagnose; told = diagnose(None, 'warm');"
        "print('torch' in sys.modules, len(told) > 10, View().torch)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    import torch

    build = f"cuda {torch.version.cuda}" if torch.version.cuda else f"hip {torch.version.hip}"
    expected = "cpu" if torch.version.cuda is torch.version.hip is None else build
    assert done.stdout.strip() == f"False True {(torch.__version__, expected)}"


def test_the_results_folder_need_not_exist_yet(tmp_path):
    assert View(results=tmp_path / "not" / "yet").free_bytes(tmp_path / "not" / "yet") > 0


SCRIPT = """
import json
from bench.doctor import View, diagnose
told = diagnose("cuda", "warm", View(torch=("2.13.0", "cuda 13.0")))
print(json.dumps([[d.name, d.level, d.seen] for d in told if d.name.startswith(("GPU", "NVML"))]))
"""


def test_the_real_bindings_are_asked_through_a_compiled_library(nvml_stub):
    told = with_library(nvml_stub, SCRIPT, CUDA_VISIBLE_DEVICES="GPU-2")
    second = "GPU GPU-22222222-2222-2222-2222-222222222222"
    assert [(name, level) for name, level, _ in told] == [("NVML", "fine"), (second, "warning"), (second, "warning")]
    assert "1 other processes" in told[1][2]
    assert "0x24 sw_power_cap sw_thermal" in told[2][2]


def test_the_real_bindings_and_a_driver_of_another_version(nvml_stub):
    ((name, level, seen),) = with_library(nvml_stub, SCRIPT, STUB_FAIL="nvmlInitWithFlags=18")
    assert (name, level) == ("NVML", "warning")
    assert "version mismatch" in seen
