"""``kernels.lock.json``: what the shipped kernels compiled to, and what must not become worse.

The file holds facts by version of Triton, because another version compiles other code: only equal versions are
compared. It has a line for the resources of a kernel, one for its instructions and one for those of its hottest loop,
in a stable order, so that a change of the kernels is read as a difference of text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bench.errors import OutputError
from bench.machine_code import Mix
from bench.occupancy import LIMITS

LOCK = Path("kernels.lock.json")
MORE_REGISTERS = 8
"""More by this many are a finding: registers are handed out in eights, and fewer are the compiler's mood."""


@dataclass(frozen=True)
class KernelFacts:
    """What one kernel of a configuration compiled to."""

    implementation: str
    configuration: str
    kernel: str
    target: str
    direction: str
    dtype: str
    head_dim: int
    blocks: str
    """What a program works on, ``128x64``."""
    num_warps: int
    num_stages: int
    registers: int
    """Of a thread; on AMD's GPUs general and accumulation registers together."""
    stack_bytes: int
    """Of a thread; registers that did not fit are spilled there."""
    shared_bytes: int
    """Of a block."""
    tensor_columns: int
    """Of a block, in tensor memory."""
    blocks_per_sm: int
    """Blocks that a multiprocessor holds at once; 0 where not even one fits."""
    occupancy: float
    """Warps of these blocks as a share of those that the target can hold."""
    limited_by: str
    code_bytes: int
    mix: Mix
    loop: Mix | None
    """Of the hottest loop; None where there is none."""
    compile_s: float | None = None
    """Processor seconds of the compilation; not part of the lock."""

    @property
    def key(self) -> str:
        """Name in the lock."""
        return f"{self.implementation}/{self.configuration}/{self.kernel}"


@dataclass(frozen=True)
class Regression:
    """Something that became worse."""

    key: str
    rule: str
    found: str

    def __str__(self) -> str:
        return f"{self.key}: {self.rule}: {self.found}"


Lock = dict[str, dict[str, KernelFacts]]
"""Version of Triton, and key of a kernel."""
_LOCK: TypeAdapter[Lock] = TypeAdapter(Lock)


def present_lock() -> Path | None:
    """The lock of the current folder; else that of the checkout that holds this package; None outside one."""
    if LOCK.exists():
        return LOCK
    path = Path(str(resources.files("bench"))).parent / LOCK
    return path if path.exists() else None


def read_lock(path: Path) -> Lock:
    """What the file holds.

    Raises:
        OutputError: if there is no such file, or it is none of ours.
    """
    try:
        return _LOCK.validate_python(json.loads(path.read_text(encoding="utf-8"))["triton"])
    except OSError as error:
        raise OutputError(
            f"lock must be a file that can be read, got {str(path)!r} ({error.strerror}). "
            "Write it with `attention-bench kernels --update`."
        ) from error
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise OutputError(
            f"lock must hold facts of kernels by version of triton, got {str(path)!r} ({str(error).splitlines()[0]}). "
            "Remove it and write it anew with `attention-bench kernels --update`."
        ) from error


def write_lock(path: Path, lock: Lock) -> None:
    """Write the file; the same facts give the same bytes.

    Raises:
        OutputError: if it cannot be written.
    """
    versions = ",\n".join(f"  {json.dumps(version)}: {{\n{_kernels(lock[version])}\n  }}" for version in sorted(lock))
    try:
        path.write_text(f'{{\n "triton": {{\n{versions}\n }}\n}}\n', encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"lock must be writable, got {str(path)!r} ({error.strerror}). Choose another with --lock."
        ) from error


def _kernels(facts: Mapping[str, KernelFacts]) -> str:
    return ",\n".join(f"   {json.dumps(key)}: {{\n{_lines(facts[key])}\n   }}" for key in sorted(facts))


def _lines(facts: KernelFacts) -> str:
    """Resources, instructions and loop of a kernel, a line each."""
    fields: dict[str, Any] = asdict(facts)
    fields.pop("compile_s")
    mix, loop = fields.pop("mix"), fields.pop("loop")
    resources = json.dumps(fields)[1:-1]
    return f'    {resources},\n    "mix": {json.dumps(mix)},\n    "loop": {json.dumps(loop)}'


def regressions(now: Sequence[KernelFacts], locked: Mapping[str, KernelFacts]) -> list[Regression]:
    """What is worse than in the lock, and where the two do not speak of the same kernels.

    Args:
        now: as compiled.
        locked: what the lock holds of the same kernels under the same version of Triton, by key.
    """
    worse = [Regression(one.key, *rule) for one in now for rule in _worse(one, locked.get(one.key))]
    present = {one.key for one in now}
    gone = "the lock holds it, and nothing was compiled under this name"
    return worse + [Regression(key, "not compiled", gone) for key in locked if key not in present]


def _worse(now: KernelFacts, before: KernelFacts | None) -> list[tuple[str, str]]:
    """Rule and finding, for each rule that a kernel breaks; without a lock it must neither spill nor be too large."""
    limit, loop = LIMITS[now.target].shared_bytes_per_block, now.loop.local_accesses if now.loop else 0
    stack, registers, blocks = 0, now.registers, now.blocks_per_sm
    loop_before, kinds = 0, now.mix.kinds
    if before is not None:
        stack, registers, blocks, kinds = before.stack_bytes, before.registers, before.blocks_per_sm, before.mix.kinds
        loop_before = before.loop.local_accesses if before.loop else 0
    rules = [
        (before is None, "not in the lock", "the lock knows no such kernel"),
        (now.stack_bytes > stack, "spills", f"{now.stack_bytes} bytes of a thread's stack instead of {stack}"),
        (loop > loop_before, "spills in the loop", f"{loop} accesses of local memory instead of {loop_before}"),
        (now.registers >= registers + MORE_REGISTERS, "registers", f"{now.registers} instead of {registers}"),
        (now.shared_bytes > limit, "shared memory", f"{now.shared_bytes:,} bytes, and {now.target} has {limit:,}"),
        (
            not now.blocks_per_sm and now.shared_bytes <= limit,
            "does not fit",
            f"no block on a multiprocessor, limited by {now.limited_by}",
        ),
        (now.blocks_per_sm < blocks, "occupancy", f"{now.blocks_per_sm} blocks instead of {blocks} ({now.limited_by})"),
        (not kinds <= now.mix.kinds, "matrix instructions", f"no {' and no '.join(sorted(kinds - now.mix.kinds))}"),
    ]
    return [(rule, text) for broken, rule, text in rules if broken]
