"""Energy per call: a scripted meter whose truth is known, the kernel's counters, and the real NVML bindings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_nvml import FakeNvml, nvml_stub, with_library

from bench.energy import MIN_UPDATES, RaplMeter, energy_meter, energy_per_call, measure_energy
from bench.errors import Unavailable
from bench.nvml import Identity

__all__ = ["nvml_stub"]


@dataclass
class Bench:
    """A machine with a clock of its own: idling draws ``idle_w``, and each call takes ``call_s`` and ``call_j`` more.

    The counter shows the truth of its last step, every ``step_s``.
    """

    idle_w: float = 50.0
    call_s: float = 0.01
    call_j: float = 2.0
    step_s: float = 0.1
    claimed_s: float | None = None
    now: float = 1000.3
    truth: float = 77.0
    calls: int = 0
    still: bool = False
    fails_after_s: float = math.inf
    name: str = "scripted"

    def __post_init__(self) -> None:
        self.update_s = self.claimed_s or self.step_s
        self.start, self.shown, self.next = self.now, self.truth, self.now + self.step_s / 3
        self.history: list[tuple[float, float]] = []

    def pass_time(self, seconds: float, joules: float) -> None:
        """Let time pass at constant power, with the counter's steps within."""
        end, power = self.now + seconds, joules / seconds
        while self.next <= end:
            self.truth += power * (self.next - self.now)
            self.now, self.shown = self.next, self.truth
            self.next += self.step_s
        self.truth += power * (end - self.now)
        self.now = end

    def sleep(self, seconds: float) -> None:
        self.pass_time(seconds, self.idle_w * seconds)

    def run(self) -> None:
        self.calls += 1
        self.pass_time(self.call_s, self.idle_w * self.call_s + self.call_j)

    def joules(self) -> float:
        if self.now - self.start > self.fails_after_s:
            raise Unavailable("NVML: GPU is lost")
        return 77.0 if self.still else self.shown

    def measure(self, **options):
        return measure_energy(self.run, self, clock=lambda: self.now, sleep=self.sleep, **options)


@pytest.mark.parametrize("call_s", [1e-4, 0.003, 0.01, 0.25, 1.7])
@pytest.mark.parametrize("step_s", [0.001, 0.02, 0.1])
def test_energy_above_idle_is_found_within_its_uncertainty(call_s, step_s):
    bench = Bench(call_s=call_s, call_j=200 * call_s, step_s=step_s)
    energy = bench.measure()
    assert abs(energy.joules_per_call - bench.call_j) <= energy.uncertainty_j
    assert energy.uncertainty_j <= 0.2 * bench.call_j
    assert energy.idle_w == pytest.approx(50, rel=0.06)
    assert energy.calls == bench.calls
    assert energy.window_s >= 2
    assert energy.method == "scripted"


@pytest.mark.parametrize("phase", range(10))
def test_the_uncertainty_covers_every_phase_of_the_counter(phase):
    bench = Bench(call_s=0.007, call_j=1.1, step_s=0.1, now=1000 + phase / 97)
    energy = bench.measure()
    assert abs(energy.joules_per_call - 1.1) <= energy.uncertainty_j


def test_the_uncertainty_is_one_update_at_each_end_of_both_windows():
    bench = Bench(call_s=0.01, call_j=2.0, step_s=0.1)
    energy = bench.measure()
    busy, idle = 250 * 0.1, 50 * 0.1  # joules in one step
    assert energy.uncertainty_j * energy.calls == pytest.approx(2 * busy + 2 * idle, rel=0.05)


def test_the_window_holds_twenty_updates_of_a_coarse_counter():
    energy = Bench(step_s=0.5).measure()
    assert energy.window_s >= MIN_UPDATES * 0.5
    assert energy.joules_per_call == pytest.approx(2, rel=0.1)


def test_a_counter_that_steps_more_rarely_than_it_claims_stretches_the_window():
    bench = Bench(step_s=0.4, claimed_s=0.1)
    energy = bench.measure()
    assert energy.window_s == pytest.approx(MIN_UPDATES * 0.4, rel=0.1)
    assert abs(energy.joules_per_call - 2) <= energy.uncertainty_j


def test_a_counter_that_is_far_too_coarse_gives_no_number():
    energy = Bench(step_s=3.0, claimed_s=0.1).measure()
    assert energy.joules_per_call is None
    assert "moved 3 times" in energy.reason
    assert energy.window_s < 11


def test_a_counter_that_stands_still_gives_no_number_and_never_zero():
    bench = Bench(still=True)
    energy = bench.measure()
    assert energy.joules_per_call is None
    assert energy.uncertainty_j is None
    assert "moved 0 times" in energy.reason
    assert bench.now - bench.start < 15  # it ends


def test_work_that_draws_no_more_than_idling_gives_no_number():
    energy = Bench(call_j=-0.1).measure()
    assert energy.joules_per_call is None
    assert "no more than idling" in energy.reason
    assert energy.idle_w == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize("fails_after_s", [0.0, 1.0, 3.0])
def test_a_meter_that_fails_gives_no_number(fails_after_s):
    energy = Bench(fails_after_s=fails_after_s).measure()
    assert (energy.joules_per_call, energy.reason) == (None, "NVML: GPU is lost")


def test_work_that_fails_is_not_hidden():
    bench = Bench()

    def run():
        raise MemoryError

    with pytest.raises(MemoryError):
        measure_energy(run, bench, clock=lambda: bench.now, sleep=bench.sleep)


def test_queued_work_is_waited_for_before_the_meter_is_read():
    bench, queued = Bench(), []

    def wait():
        while queued:
            queued.pop()
            bench.run()

    def launch():
        queued.append(1)
        bench.pass_time(0.001, 0.05)

    energy = measure_energy(launch, bench, clock=lambda: bench.now, sleep=bench.sleep, synchronize=wait)
    assert energy.calls == bench.calls
    assert abs(energy.joules_per_call - 2) <= energy.uncertainty_j


# --------------------------------------------------------------------------------------------------------- RAPL


@pytest.fixture
def zones(tmp_path):
    folder = tmp_path / "sys/class/powercap"

    def plant(name: str, label: str, energy: int, largest: int = 1_000_000) -> Path:
        zone = folder / name
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "name").write_text(f"{label}\n")
        (zone / "max_energy_range_uj").write_text(f"{largest}\n")
        (zone / "energy_uj").write_text(f"{energy}\n")
        return zone

    return tmp_path, plant


def test_packages_are_added_and_their_parts_are_not(zones):
    root, plant = zones
    plant("intel-rapl:0", "package-0", 100)
    plant("intel-rapl:0:0", "core", 100)
    plant("intel-rapl:1", "package-1", 100)
    plant("intel-rapl:2", "psys", 100)
    meter = RaplMeter(root)
    assert meter.joules() == 0
    plant("intel-rapl:0", "package-0", 300_100)
    plant("intel-rapl:0:0", "core", 200_100)
    plant("intel-rapl:1", "package-1", 500_100)
    plant("intel-rapl:2", "psys", 900_100)
    assert meter.joules() == pytest.approx(0.8)


def test_a_counter_that_wraps_around_goes_on(zones):
    root, plant = zones
    plant("intel-rapl:0", "package-0", 900_000)
    meter = RaplMeter(root)
    seen = []
    for energy in (100_000, 600_000, 50_000):
        plant("intel-rapl:0", "package-0", energy)
        seen.append(meter.joules())
    assert seen == [pytest.approx(0.2), pytest.approx(0.7), pytest.approx(1.15)]


def test_a_counter_that_falls_without_a_range_is_unavailable(zones):
    root, plant = zones
    zone = plant("intel-rapl:0", "package-0", 900_000)
    meter = RaplMeter(root)
    plant("intel-rapl:0", "package-0", 100)
    (zone / "max_energy_range_uj").unlink()
    with pytest.raises(Unavailable, match="max_energy_range_uj cannot be read"):
        meter.joules()
    (zone / "max_energy_range_uj").write_text("5")
    with pytest.raises(Unavailable, match="more than its range"):
        meter.joules()


def test_a_counter_that_may_not_be_read_is_unavailable(zones):
    root, plant = zones
    zone = plant("intel-rapl:0", "package-0", 1)
    (zone / "energy_uj").unlink()
    (zone / "energy_uj").mkdir()  # unreadable for root as well
    with pytest.raises(Unavailable, match="intel-rapl:0/energy_uj cannot be read"):
        RaplMeter(root)


def test_a_machine_without_counters_is_unavailable(tmp_path):
    with pytest.raises(Unavailable, match="no processor energy counter"), energy_meter(root=tmp_path):
        pass


def test_no_meter_at_all_is_no_number_with_its_reason():
    def opener():
        raise Unavailable("NVML: Driver Not Loaded")

    energy = energy_per_call(lambda: None, (Identity("x"),), opener=opener)
    assert (energy.joules_per_call, energy.method, energy.reason) == (None, "none", "NVML: Driver Not Loaded")


def test_a_board_that_is_not_found_has_no_meter():
    library = FakeNvml()
    with pytest.raises(Unavailable, match="UUID x"), energy_meter((Identity("x"),), opener=library):
        pass
    assert library.open == 0


# ------------------------------------------------------------------------------------------- the real bindings

SCRIPT = """
import json, time
from bench import energy
from bench.nvml import Identity
energy.NvmlMeter.update_s = 0.01
used = []

def run():
    start, sink = time.process_time(), 0
    for i in range(20_000):
        sink += i
    used.append(time.process_time() - start)

with energy.energy_meter((Identity("22222222-2222-2222-2222-222222222222"),)) as meter:
    told = energy.measure_energy(run, meter, window_s=0.6)
print(json.dumps([told.model_dump(), sum(used) / max(1, len(used))]))
"""


def test_the_real_bindings_measure_what_a_compiled_library_counts(nvml_stub):
    """The stub draws 200 W while its process computes, so a call's energy is its processor time at 200 W."""
    told, cpu_s = with_library(nvml_stub, SCRIPT, STUB_STEP_MS="10")
    assert told["method"] == "nvml_total_energy"
    assert told["idle_w"] == pytest.approx(100, rel=0.3)
    # Beside the call itself, the loop around it computes as well.
    assert 200 * cpu_s - told["uncertainty_j"] <= told["joules_per_call"] <= 220 * cpu_s + told["uncertainty_j"]


def test_the_real_bindings_and_a_counter_that_stands_still(nvml_stub):
    told, _ = with_library(nvml_stub, SCRIPT.replace("0.6", "0.2"), STUB_ENERGY="still")
    assert told["joules_per_call"] is None
    assert "moved 0 times" in told["reason"]


@pytest.mark.parametrize(("code", "message"), [(3, "NVML: Not Supported"), (4, "NVML: Insufficient Permissions")])
def test_the_real_bindings_and_a_board_without_the_counter(nvml_stub, code, message):
    told, _ = with_library(nvml_stub, SCRIPT, STUB_FAIL=f"nvmlDeviceGetTotalEnergyConsumption={code}")
    assert told["joules_per_call"] is None
    assert told["reason"] == message
