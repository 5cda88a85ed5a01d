"""How many blocks of a kernel a multiprocessor holds at once, and the limits of the targets with their sources.

Registers are shared out per quarter of a multiprocessor, in units of eight for each lane of a warp; shared memory per
multiprocessor, in its own units. On AMD's GPUs a multiprocessor is called a compute unit, a quarter a SIMD, a warp a
wave and shared memory LDS; general and accumulation registers come out of one file.
"""

from __future__ import annotations

from dataclasses import dataclass

CUDA_GUIDE = (
    "CUDA C++ Programming Guide, Technical Specifications per Compute Capability, "
    "docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications"
)
PTX_GUIDE = "PTX ISA, Tensor Memory, docs.nvidia.com/cuda/parallel-thread-execution/#tensor-memory"
AMD_GUIDE = (
    "AMD Instinct MI300 (CDNA3) ISA; registers, waves and groups of a CU as in LLVM's AMDGPUBaseInfo.cpp, "
    "llvm.org/docs/AMDGPUUsage.html"
)
QUARTERS = 4
"""Parts of a multiprocessor, each with registers of its own."""
REGISTER_UNIT = 8
"""Registers of a lane are handed out in multiples of it."""


@dataclass(frozen=True)
class Limits:
    """What a multiprocessor of one target has."""

    registers: int
    """32-bit registers of a multiprocessor."""
    registers_per_thread: int
    """Most that one thread may use."""
    lanes: int
    """Threads of a warp."""
    warps: int
    """Most warps on a multiprocessor."""
    blocks: int
    """Most blocks on a multiprocessor."""
    shared_bytes: int
    """Shared memory of a multiprocessor."""
    shared_bytes_per_block: int
    """Most that one block may have."""
    shared_reserved_bytes: int
    """What the system takes of it for each block."""
    shared_unit: int
    """Bytes that it is handed out in multiples of."""
    tensor_columns: int
    """Columns of tensor memory; 0 where there is none."""
    source: str

    def explained(self) -> str:
        """The limits in words, with their source."""
        tensor = f", {self.tensor_columns} columns of tensor memory" if self.tensor_columns else ""
        return (
            f"{self.registers:,} registers, at most {self.registers_per_thread} a thread; {self.warps} warps of "
            f"{self.lanes}; {self.blocks} blocks; {self.shared_bytes / 1024:g} KB of shared memory, at most "
            f"{self.shared_bytes_per_block / 1024:g} KB a block{tensor} ({self.source})"
        )


KB = 1024
LIMITS: dict[str, Limits] = {
    "sm_80": Limits(65_536, 255, 32, 64, 32, 164 * KB, 163 * KB, KB, 128, 0, CUDA_GUIDE),
    "sm_90": Limits(65_536, 255, 32, 64, 32, 228 * KB, 227 * KB, KB, 128, 0, CUDA_GUIDE),
    "sm_100": Limits(65_536, 255, 32, 64, 32, 228 * KB, 227 * KB, KB, 128, 512, f"{CUDA_GUIDE}; {PTX_GUIDE}"),
    "gfx942": Limits(131_072, 512, 64, 32, 16, 64 * KB, 64 * KB, 0, 512, 0, AMD_GUIDE),
}
"""Targets that kernels are compiled for."""


@dataclass(frozen=True)
class Occupancy:
    """What of a kernel is on a multiprocessor at once."""

    blocks: int
    """0 where not even one block fits."""
    warps: int
    share: float
    """Of the warps that the target can hold."""
    limited_by: str
    """``registers``, ``shared memory``, ``tensor memory``, ``warps`` or ``blocks``."""


def occupancy(limits: Limits, num_warps: int, registers: int, shared_bytes: int, tensor_columns: int = 0) -> Occupancy:
    """Blocks and warps of a kernel on one multiprocessor.

    Args:
        limits: of the target.
        num_warps: warps of a block.
        registers: of a thread.
        shared_bytes: of a block, without what the system reserves.
        tensor_columns: of a block.
    """
    quarter = limits.registers // QUARTERS
    warps_by_registers = quarter // (_up(max(registers, 1), REGISTER_UNIT) * limits.lanes) * QUARTERS
    fitting = {
        "warps": limits.warps // num_warps,
        "blocks": limits.blocks,
        "registers": warps_by_registers // num_warps if registers <= limits.registers_per_thread else 0,
    }
    if shared := _up(shared_bytes + limits.shared_reserved_bytes, limits.shared_unit):
        fitting["shared memory"] = limits.shared_bytes // shared if shared_bytes <= limits.shared_bytes_per_block else 0
    if tensor_columns:
        fitting["tensor memory"] = limits.tensor_columns // tensor_columns
    limited_by = min(fitting, key=fitting.__getitem__)
    blocks = fitting[limited_by]
    return Occupancy(blocks, blocks * num_warps, blocks * num_warps / limits.warps, limited_by)


def _up(value: int, unit: int) -> int:
    """The next multiple of ``unit``."""
    return -(-value // unit) * unit
