"""Rounds in which a GPU throttled, found while measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from bench import nvml, sensors
from bench.errors import Unavailable
from bench.nvml import Identity

CLOCK_FLOOR = 0.9
"""A round whose SM clock is below this share of the session's median is not comparable with the others."""
STUCK_SHARE = 0.75
"""A clock that stays below this share of the board's maximum is a doubt about every round alike."""
THROTTLED_SHARE = 0.2
"""More throttled rounds than this are a doubt about the rest."""
MIN_CLOCKS = 5
"""Readings that make a median."""


class ThrottleGuard:
    """Says after each round whether the GPU throttled in it, so that the round is discarded for all alike.

    It reads two sensors and never waits. It discards at most ``limit`` rounds: a board that is always slow still
    gets its samples, and :meth:`doubt` says what is wrong with them. On a CPU it never objects.

    Args:
        gpus: as from :func:`~bench.nvml.cuda_identity`.
        limit: rounds that it discards at most.
        opener: opens NVML.
    """

    def __init__(
        self, gpus: Sequence[Identity] = (), *, limit: int = 10, opener: Callable[[], Any] = nvml.open_library
    ) -> None:
        self.limit, self.rounds, self.throttled, self.discarded = limit, 0, 0, 0
        self.clocks_mhz: list[float] = []
        self._library: Any = None
        if not gpus:
            return
        try:
            self._library = opener()
            self._handle = nvml.find_board(self._library, gpus[0]).handle
        except Unavailable:  # without sensors nothing is discarded; telemetry holds the reason
            self.close()
            return
        library = self._library
        self._counters = sensors.throttle_counters(library, self._handle)
        self._most_mhz, _ = nvml.read(
            library, lambda: float(library.nvmlDeviceGetMaxClockInfo(self._handle, library.NVML_CLOCK_SM))
        )

    def __call__(self) -> str | None:
        """Why the round since the last call is to be discarded; None if it is fine or the limit is reached."""
        if self._library is None:
            return None
        self.rounds += 1
        before, self._counters = self._counters, sensors.throttle_counters(self._library, self._handle)
        advanced = [name for name, now in self._counters.items() if sensors.advanced(before[name], now)[0]]
        clock_mhz, _ = sensors.sm_clock_mhz(self._library, self._handle)
        usual_mhz = median(self.clocks_mhz) if len(self.clocks_mhz) >= MIN_CLOCKS else None
        reason = None
        if advanced:
            reason = " and ".join(advanced)
        elif clock_mhz is not None and usual_mhz is not None and clock_mhz < CLOCK_FLOOR * usual_mhz:
            reason = f"the SM clock was {clock_mhz:.0f} MHz, the median so far {usual_mhz:.0f} MHz"
        if clock_mhz is not None:
            self.clocks_mhz.append(clock_mhz)
        if reason is None:
            return None
        self.throttled += 1
        if self.discarded >= self.limit:
            return None
        self.discarded += 1
        return reason

    def doubt(self) -> str | None:
        """What is doubtful about the rounds that were kept, for the flag ``throttled``; None if nothing is."""
        if self.throttled > THROTTLED_SHARE * self.rounds:
            return f"the GPU throttled in {self.throttled} of {self.rounds} rounds, {self.discarded} were discarded"
        if len(self.clocks_mhz) < MIN_CLOCKS:
            return None
        tenth = max(MIN_CLOCKS // 2, len(self.clocks_mhz) // 10)
        first, last = median(self.clocks_mhz[:tenth]), median(self.clocks_mhz[-tenth:])
        if last < CLOCK_FLOOR * first:
            return f"the SM clock fell from {first:.0f} to {last:.0f} MHz"
        usual = median(self.clocks_mhz)
        if self._most_mhz is not None and usual < STUCK_SHARE * self._most_mhz:
            return f"the SM clock stayed at {usual:.0f} of at most {self._most_mhz:.0f} MHz"
        return None

    def close(self) -> None:
        """Give the library back."""
        if self._library is not None:
            nvml.close_library(self._library)
            self._library = None
