"""The verb that compiles kernels for targets that are not there."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bench.cli._shared import app, say
from bench.errors import NothingSelectedError, UnknownNameError, UsageError
from bench.implementation import KernelConfiguration
from bench.tables import Format, write_rows

if TYPE_CHECKING:
    from bench.kernel_lock import KernelFacts
    from bench.kernel_report import Shipped


@app.command
def kernels(
    *,
    target: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    direction: Literal["fwd", "bwd"] | None = None,
    implementation: Annotated[tuple[str, ...], Parameter(name=["--implementation", "-i"], negative="")] = (),
    only: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    check: Annotated[bool, Parameter(negative="")] = False,
    update: Annotated[bool, Parameter(negative="")] = False,
    fresh: Annotated[bool, Parameter(negative="")] = False,
    lock: Path = Path("kernels.lock.json"),
    format: Format = "table",
) -> int:
    """Compiles the shipped Triton kernels for named targets, with no device, and shows what came of it.

    Registers, spills, shared memory, occupancy, matrix instructions, loads and stores, and the mix of instructions in
    the hottest loop. Exit code 1 if a kernel does not compile, 3 if --check finds something worse than in the lock, 5
    if there is nothing to compile or to compare with.

    Args:
        target: Only for this target: sm_80, sm_90, sm_100 or gfx942. May be given several times.
        direction: Only kernels of this direction.
        implementation: Regular expression; only implementations whose name it finds. May be given several times.
        only: Regular expression; only configurations whose name it finds. May be given several times.
        check: Compare with the lock: new spills, 8 registers more, too much shared memory, less occupancy, matrix
            instructions gone.
        update: Write what came of it to the lock.
        fresh: Compile everything, also what is kept from an earlier call.
        lock: File that holds what the kernels compiled to.
        format: How to write the kernels to stdout.
    """
    from bench.kernel_lock import read_lock, write_lock
    from bench.kernel_report import TESTED, shipped_configurations, triton_version

    if check and update:
        raise UsageError("kernels must either --check or --update the lock, got both. Check first, then update.")
    selection = _Selection.of(target, direction, implementation, only)
    wanted = [one for one in shipped_configurations() if selection.takes(one.implementation, one.configuration)]
    if not wanted:
        raise NothingSelectedError(
            "filters must leave a configuration to compile, got none. Loosen them, or see all with "
            "`attention-bench kernels`."
        )
    release = triton_version()
    if release not in TESTED:
        say(f"note: tried on triton {', '.join(TESTED)}; this is {release}, whose disassembly may read differently")
    locked = read_lock(lock) if check or (update and lock.exists()) else {}
    if check and release not in locked:
        raise NothingSelectedError(
            f"lock must hold the triton at hand, got {' and '.join(sorted(locked))} in {str(lock)!r} and {release} "
            f"installed: not comparable. Install one of those, or add this one with `attention-bench kernels --update`."
        )
    facts, failures = _compile(wanted, fresh)
    _show(facts, format)
    before = locked.get(release, {})
    chosen = {key for key, one in before.items() if selection.takes(one.implementation, one)}
    if update and failures:
        say(f"lock: {lock} is not written, as not everything compiles")
    elif update:  # other versions of Triton stay, and of this one what was not selected
        others = {key: one for key, one in before.items() if key not in chosen}
        write_lock(lock, locked | {release: others | {one.key: one for one in facts}})
        say(f"lock: {lock}, {len(facts)} kernels of triton {release}")
    worse = _judge(facts, {key: before[key] for key in chosen}) if check else 0
    return 1 if failures else 3 if worse else 0


@dataclass(frozen=True)
class _Selection:
    """Which configurations, of what is shipped and of what the lock holds."""

    targets: tuple[str, ...]
    direction: str | None
    implementations: list[re.Pattern[str]]
    names: list[re.Pattern[str]]

    @classmethod
    def of(
        cls, targets: tuple[str, ...], direction: str | None, implementation: Sequence[str], only: Sequence[str]
    ) -> _Selection:
        from bench.occupancy import LIMITS

        for name in targets:
            if name not in LIMITS:
                raise UnknownNameError("target", name, LIMITS)
        return cls(targets, direction, _patterns("--implementation", implementation), _patterns("--only", only))

    def takes(self, implementation: str, one: KernelConfiguration | KernelFacts) -> bool:
        name = one.name if isinstance(one, KernelConfiguration) else one.configuration
        return (
            (not self.targets or one.target in self.targets)
            and self.direction in (None, one.direction)
            and _finds(self.implementations, implementation)
            and _finds(self.names, name)
        )


def _finds(patterns: Sequence[re.Pattern[str]], name: str) -> bool:
    return not patterns or any(pattern.search(name) for pattern in patterns)


def _patterns(option: str, texts: Sequence[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(text) for text in texts]
    except re.error as error:
        raise UsageError(
            f"{option} must be a regular expression, got {error.pattern!r} ({error}). Escape it."
        ) from None


def _compile(wanted: Sequence[Shipped], fresh: bool) -> tuple[list[KernelFacts], int]:
    """Facts in the order of the tables, and how many configurations failed, each of which is told."""
    from rich.console import Console
    from rich.progress import track

    from bench.kernel_report import compile_all

    console, found, failures = Console(stderr=True), {}, 0
    results = compile_all(wanted, fresh=fresh)
    for compiled in track(
        results, "compiling", len(wanted), console=console, transient=True, disable=not console.is_terminal
    ):
        if compiled.failure is None:
            found[compiled.shipped] = compiled.facts
        else:
            failures += 1
            say(f"error: {compiled.shipped.configuration.name} does not compile: {compiled.failure}")
    return [facts for one in wanted for facts in found.get(one, ())], failures


def _show(facts: Sequence[KernelFacts], style: Format) -> None:
    """Write the kernels to stdout; what people read says what it means."""
    from bench.kernel_table import explanations, full_rows, long_rows, short_rows

    if style in ("json", "jsonl", "csv"):
        write_rows(full_rows(facts, flat=style == "csv"), style, sys.stdout)
        return
    write_rows(short_rows(facts) if style == "table" else long_rows(facts), style, sys.stdout)
    for text in explanations(dict.fromkeys(one.target for one in facts)):
        print(f"\n{text}")


def _judge(facts: Sequence[KernelFacts], locked: Mapping[str, KernelFacts]) -> int:
    """Say what became worse; how much that is."""
    from bench.kernel_lock import regressions

    worse = regressions(facts, locked)
    for found in worse:
        say(f"worse: {found}")
    say(f"{len(facts)} kernels compared with the lock: {f'{len(worse)} findings' if worse else 'nothing is worse'}")
    return len(worse)
