"""Code and resources of a compiled kernel, from the tools that Triton brings along."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.errors import Unavailable
from bench.machine_code import Code, read_amdgcn, read_sass

SASS_BYTES = 16
"""Of an instruction, from Volta on."""


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of a multiprocessor, as its compiler tells it."""

    registers: int
    """Of a thread; on AMD's GPUs general and accumulation registers together."""
    stack_bytes: int
    """Of a thread, where registers are spilled to."""
    code_bytes: int


def disassembled(assembly: Mapping[str, str | bytes]) -> tuple[Code, Resources]:
    """The kernel in what Triton keeps of a compilation (``cubin``, or ``amdgcn``).

    Raises:
        Unavailable: if a tool of Triton does not run, or prints what is not understood.
    """
    if "amdgcn" in assembly:
        text = str(assembly["amdgcn"])
        return read_amdgcn(text), amd_resources(text)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(bytes(assembly["cubin"]))  # type: ignore[arg-type]  # Triton gives a cubin as bytes
        cubin.flush()
        code = read_sass(_told("nvdisasm", "-c", cubin.name))
        return code, nvidia_resources(_told("cuobjdump", "-res-usage", cubin.name), len(code.instructions))


def lined(assembly: Mapping[str, str | bytes]) -> str:
    """A cubin's disassembly with the line of the source before the instructions that come from it.

    Raises:
        Unavailable: if it is no cubin, or a tool of Triton does not run.
    """
    if "cubin" not in assembly:
        raise Unavailable(
            "lines of the source must come from a cubin, got a kernel for AMD's GPUs. Name another target."
        )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(bytes(assembly["cubin"]))  # type: ignore[arg-type]  # Triton gives a cubin as bytes
        cubin.flush()
        return _told("nvdisasm", "-c", "-g", cubin.name)


def nvidia_resources(text: str, instructions: int) -> Resources:
    """From ``cuobjdump -res-usage``. Spills are in STACK; LOCAL stays 0."""
    return Resources(_number(r"\bREG:(\d+)", text), _number(r"\bSTACK:(\d+)", text), SASS_BYTES * instructions)


def amd_resources(text: str) -> Resources:
    """From the metadata at the end of AMD's assembly."""
    return Resources(
        _number(r"\.vgpr_count:\s+(\d+)", text),
        _number(r"\.private_segment_fixed_size:\s+(\d+)", text),
        _number(r"; codeLenInByte = (\d+)", text),
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise Unavailable(f"disassembly must tell {pattern!r}, got {text[:200]!r}. Report the version of triton.")
    return int(found[1])


def _told(tool: str, *arguments: str) -> str:
    """What a tool of Triton's prints."""
    from triton import knobs

    path = Path(getattr(knobs.nvidia, tool).path)
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{tool} must read what triton compiled, got {done.stderr.strip()!r}. Install triton anew.")
    return done.stdout
