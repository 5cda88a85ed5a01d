"""Shipped Triton kernels compiled for named targets with no device at hand, and what they compiled to.

Triton brings the compilers and the disassemblers in its wheel. Each configuration is compiled in a process of its own
kind: kernels are not interpreted there, whatever ``TRITON_INTERPRET`` says here, and Triton's cache starts empty, so
that the time of a compilation is never that of a look-up. What was found is kept under ``attention-bench/kernels`` in
the user's cache folder, by everything that it depends on.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bench import control_flow, disassembly, machine_code, occupancy
from bench.disassembly import disassembled
from bench.errors import NothingSelectedError
from bench.implementation import KernelConfiguration, KernelSource, Precompiled, implementations
from bench.kernel_lock import KernelFacts
from bench.lifeline import end_with_parent
from bench.machine_code import hot_loop, mix_of
from bench.occupancy import LIMITS

TESTED = ("3.7.1",)
"""Versions of Triton whose output this was tried on."""
PROCESSES = 2
_FACTS: TypeAdapter[list[KernelFacts]] = TypeAdapter(list[KernelFacts])


class NoTriton(NothingSelectedError):
    """Triton is not installed, so there is nothing to compile with."""


@dataclass(frozen=True)
class Shipped:
    """A configuration and the implementation that ships it."""

    implementation: str
    configuration: KernelConfiguration


@dataclass(frozen=True)
class Compiled:
    """What came of a configuration: facts of its kernels, or why there are none."""

    shipped: Shipped
    facts: tuple[KernelFacts, ...] = ()
    failure: str | None = None


def triton_version() -> str:
    """The installed version.

    Raises:
        NoTriton: where there is none.
    """
    try:
        return version("triton")
    except PackageNotFoundError as error:
        raise NoTriton(
            "kernels must be compiled by triton, got none installed (it ships for Linux). Install it with "
            "`pip install triton`, or run this on Linux; everything else works without it."
        ) from error


def shipped_configurations() -> list[Shipped]:
    """All configurations of all implementations that can be compiled ahead, in the order of their tables."""
    return [
        Shipped(name, configuration)
        for name, member in implementations.items()
        if isinstance(member, Precompiled)
        for configuration in member.kernel_configurations()
    ]


def compile_all(wanted: Sequence[Shipped], *, fresh: bool = False, folder: Path | None = None) -> Iterator[Compiled]:
    """Compile configurations, or take what is kept; each is given as soon as it is known.

    Args:
        wanted: what to compile.
        fresh: compile what is kept, too.
        folder: where results are kept; None: in the user's cache folder.

    Raises:
        NoTriton: where Triton is not installed.
    """
    release = triton_version()
    kept = {one: _kept(one, release, folder) for one in wanted}
    missing = []
    for one, path in kept.items():
        facts = None if fresh else _read(path)
        if facts is None:
            missing.append(one)
        else:
            yield Compiled(one, facts)
    if not missing:
        return
    for compiled in _in_processes(missing):
        if compiled.failure is None:
            _write(kept[compiled.shipped], compiled.facts)
        yield compiled


def _in_processes(wanted: Sequence[Shipped]) -> Iterator[Compiled]:
    with (
        tempfile.TemporaryDirectory(prefix="attention-bench-kernels-") as cache,
        ProcessPoolExecutor(
            min(PROCESSES, len(wanted)), get_context("spawn"), initializer=_enter, initargs=(cache,)
        ) as pool,
    ):
        futures: dict[Future[list[KernelFacts]], Shipped] = {pool.submit(facts_of, one): one for one in wanted}
        try:
            for future in as_completed(futures):
                shipped, error = futures[future], future.exception()
                if error is None:
                    yield Compiled(shipped, tuple(future.result()))
                else:
                    yield Compiled(shipped, failure=f"{type(error).__name__}: {error}")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _enter(cache: str) -> None:
    """In a process that compiles, before anything is imported."""
    end_with_parent()
    os.environ |= {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache}


def facts_of(shipped: Shipped) -> list[KernelFacts]:
    """Compile the kernels of a configuration in this process, which must not interpret them."""
    member = implementations.get(shipped.implementation)
    if not isinstance(member, Precompiled):
        raise TypeError(f"{shipped.implementation} has no kernels to be compiled ahead")
    return [_facts(shipped, source) for source in member.kernel_sources(shipped.configuration.name)]


def _facts(shipped: Shipped, source: KernelSource) -> KernelFacts:
    before = os.times()
    assembly, metadata = compile_source(source)
    after = os.times()
    configuration = shipped.configuration
    code, resources = disassembled(assembly)
    loop = hot_loop(code)
    tensor_columns = getattr(metadata, "tmem_size", None) or 0
    fits = occupancy.occupancy(
        LIMITS[configuration.target], metadata.num_warps, resources.registers, metadata.shared, tensor_columns
    )
    return KernelFacts(
        implementation=shipped.implementation,
        configuration=configuration.name,
        kernel=metadata.name,
        target=configuration.target,
        direction=configuration.direction,
        dtype=configuration.dtype,
        head_dim=configuration.head_dim,
        blocks=source.blocks,
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
        registers=resources.registers,
        stack_bytes=resources.stack_bytes,
        shared_bytes=metadata.shared,
        tensor_columns=tensor_columns,
        blocks_per_sm=fits.blocks,
        occupancy=fits.share,
        limited_by=fits.limited_by,
        code_bytes=resources.code_bytes,
        mix=mix_of(code.instructions),
        loop=None if loop is None else mix_of(loop),
        compile_s=round(sum(after[:4]) - sum(before[:4]), 2),
    )


def compile_source(source: KernelSource) -> tuple[Any, Any]:
    """Triton's assembly by kind, and its metadata."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = ASTSource(source.function, dict(source.signature), dict(source.constexprs), dict(source.attrs))
    compiled = triton.compile(kernel, target=GPUTarget(*source.device), options=dict(source.options))
    return compiled.asm, compiled.metadata


def _kept(one: Shipped, release: str, folder: Path | None) -> Path:
    """Where the facts of a configuration are kept, by everything that they depend on."""
    ours = (control_flow, disassembly, machine_code, occupancy)
    reader = b"".join(Path(str(module.__file__)).read_bytes() for module in ours)
    key = hashlib.sha256(f"{one} triton {release}".encode() + reader).hexdigest()[:32]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (folder or root / "attention-bench" / "kernels") / f"{key}.json"


def _read(path: Path) -> tuple[KernelFacts, ...] | None:
    """What is kept; None where there is no readable file."""
    try:
        return tuple(_FACTS.validate_json(path.read_bytes()))
    except (OSError, ValidationError):
        return None


def _write(path: Path, facts: tuple[KernelFacts, ...]) -> None:
    """Keep facts, in one step; where that is not possible they are compiled again next time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(f".{os.getpid()}")
        half.write_bytes(_FACTS.dump_json(list(facts)))
        half.replace(path)
