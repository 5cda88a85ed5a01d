"""Energy of one call, from a counter that the hardware keeps.

Counters move in steps: NVML's about every 100 ms, RAPL's about every millisecond. A window that is short against
the steps reads 0 J, so a window lasts at least 2 s and 20 steps, and a counter that did not move gives no number
at all. What the machine draws without work is measured before and subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench import nvml
from bench.errors import Unavailable
from bench.nvml import Identity
from bench.record import Energy

MIN_UPDATES = 20
"""Steps of the counter within a window: the two at its ends then weigh at most a tenth."""
PATIENCE = 5
"""A counter that steps more rarely than it says may stretch the window to this many times its length."""
POLLS_PER_UPDATE = 4
POLLS_PER_WINDOW = 200
"""Reading the counter costs time as well, so a fast one is not read at each of its steps."""


class EnergyMeter(Protocol):
    """A counter of energy."""

    name: str
    """As stored in ``Energy.method``."""
    update_s: float
    """How often the counter steps, as far as is known."""

    def joules(self) -> float:
        """Energy since a moment that stays the same; never falls.

        Raises:
            Unavailable: if it cannot be read.
        """
        ...


class NvmlMeter:
    """Energy of a whole GPU since its driver was loaded (Volta and later); not of one MIG instance.

    Args:
        library: the initialised bindings.
        handle: NVML's handle of the board.
    """

    name = "nvml_total_energy"
    update_s = 0.1

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    def joules(self) -> float:
        """As the protocol says; the counter is in millijoules."""
        millijoules, reason = nvml.ask(self._library, "nvmlDeviceGetTotalEnergyConsumption", self._handle)
        if millijoules is None:
            raise Unavailable(str(reason))
        return float(millijoules) / 1000


class RaplMeter:
    """Energy of all processor packages, by everybody on them, as the kernel's powercap interface counts it.

    Each counter wraps around at its own range (a few minutes at full power), which is undone as long as it is
    read more often than that.

    Args:
        root: where ``sys`` lies.

    Raises:
        Unavailable: if there is no counter, or it may not be read (since 2020 only root may).
    """

    name = "rapl"
    update_s = 0.001

    def __init__(self, root: Path = Path("/")) -> None:
        zones = sorted((root / "sys/class/powercap").glob("intel-rapl:[0-9]*"))
        # Parts of a package have names of their own (core, dram) and psys holds all: neither is counted twice.
        self._zones = [zone for zone in zones if _text(zone / "name").startswith("package")]
        if not self._zones:
            raise Unavailable("the kernel shows no processor energy counter (/sys/class/powercap)")
        self._last = [_microjoules(zone / "energy_uj") for zone in self._zones]
        self._total = 0

    def joules(self) -> float:
        """As the protocol says, since the meter was made; the counters are in microjoules."""
        for index, zone in enumerate(self._zones):
            now = _microjoules(zone / "energy_uj")
            step = now - self._last[index]
            if step < 0:
                step += _microjoules(zone / "max_energy_range_uj")
            if step < 0:
                raise Unavailable(f"{zone.name}/energy_uj fell by more than its range")
            self._total += step
            self._last[index] = now
        return self._total / 1e6


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _microjoules(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        raise Unavailable(f"{path.parent.name}/{path.name} cannot be read ({error})") from error


@dataclass(frozen=True)
class _Window:
    seconds: float
    joules: float
    calls: int
    updates: int
    step_j: float
    """Largest step of the counter."""


@contextmanager
def energy_meter(
    gpus: Sequence[Identity] = (), *, root: Path = Path("/"), opener: Callable[[], Any] = nvml.open_library
) -> Iterator[EnergyMeter]:
    """The meter of the first GPU, else of the processor, for a ``with`` block.

    Args:
        gpus: as from :func:`~bench.nvml.cuda_identity`.
        root: where ``sys`` lies.
        opener: opens NVML.

    Raises:
        Unavailable: if there is none that can be read.
    """
    if not gpus:
        yield RaplMeter(root)
        return
    with nvml.session(opener) as library:
        yield NvmlMeter(library, nvml.find_board(library, gpus[0]).handle)


def energy_per_call(
    run: Callable[[], object],
    gpus: Sequence[Identity] = (),
    *,
    synchronize: Callable[[], object] = lambda: None,
    window_s: float = 2.0,
    opener: Callable[[], Any] = nvml.open_library,
) -> Energy:
    """As :func:`measure_energy` with whatever meter there is; without one, no number and the reason."""
    try:
        with energy_meter(gpus, opener=opener) as meter:
            return measure_energy(run, meter, synchronize=synchronize, window_s=window_s)
    except Unavailable as error:
        return Energy(joules_per_call=None, method="none", reason=str(error))


def measure_energy(
    run: Callable[[], object],
    meter: EnergyMeter,
    *,
    window_s: float = 2.0,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    synchronize: Callable[[], object] = lambda: None,
) -> Energy:
    """Energy of one call of ``run`` above idle.

    Args:
        run: the call; it may return before its work is done if ``synchronize`` waits for it.
        meter: what counts.
        window_s: least length of the window with work and of the one without, each.
        clock: seconds.
        sleep: waits without working.
        synchronize: waits until all queued work is done.

    Raises:
        Whatever ``run`` raises; a meter that fails gives no number, with its reason.
    """
    poll_s = max(meter.update_s / POLLS_PER_UPDATE, window_s / POLLS_PER_WINDOW)
    shortest_s = max(window_s, MIN_UPDATES * meter.update_s)

    def rest() -> int:
        sleep(poll_s)
        return 0

    def work() -> int:
        end, calls = clock() + poll_s, 0
        while calls == 0 or clock() < end:
            run()
            calls += 1
        synchronize()
        return calls

    nothing = partial(Energy, joules_per_call=None, method=meter.name)
    try:
        idle = _watch(rest, meter, shortest_s, shortest_s, clock)
        busy = _watch(work, meter, shortest_s, PATIENCE * shortest_s, clock)
    except Unavailable as error:
        return nothing(reason=str(error))
    known = {"window_s": busy.seconds, "calls": busy.calls}
    if busy.updates < MIN_UPDATES:
        return nothing(reason=f"the counter moved {busy.updates} times in {busy.seconds:.1f} s of work", **known)
    idle_w = idle.joules / idle.seconds if idle.updates else None
    above = busy.joules - (idle_w or 0.0) * busy.seconds
    if above <= 0:
        return nothing(reason=f"work drew no more than idling did ({idle_w:.1f} W)", idle_w=idle_w, **known)
    doubt = 2 * busy.step_j + 2 * idle.step_j * busy.seconds / idle.seconds
    return Energy(
        joules_per_call=above / busy.calls,
        uncertainty_j=doubt / busy.calls,
        idle_w=idle_w,
        method=meter.name,
        **known,
    )


def _watch(
    step: Callable[[], int], meter: EnergyMeter, shortest_s: float, longest_s: float, clock: Callable[[], float]
) -> _Window:
    """Repeat ``step`` until the window is long enough and the counter has moved often enough, or patience ends."""
    calls = updates = 0
    step_j = 0.0
    start = before = clock()
    first = last = meter.joules()
    while True:
        calls += step()
        now, value = clock(), meter.joules()
        if value > last:
            # Between two looks far apart the counter moved more than once.
            moved = max(1, int((now - before) / meter.update_s))
            updates += moved
            step_j = max(step_j, (value - last) / moved)
            last = value
        before = now
        elapsed = now - start
        if elapsed >= longest_s or (elapsed >= shortest_s and updates >= MIN_UPDATES):
            return _Window(elapsed, last - first, calls, updates, step_j)
