"""What a compiled kernel consists of, read off its disassembly: SASS of NVIDIA, or the assembly of AMD's GPUs.

Counted are instructions of the text, each once however often it runs: matrix instructions by kind, exponentials, loads
and stores by memory and width. The same is counted in the hottest loop, which is found in the control flow: compilers
put what seldom runs behind the end, so that a branch backwards need not be a loop.

SASS is what ``nvdisasm -c`` prints; AMD's assembly is what Triton keeps as ``asm["amdgcn"]``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from bench.control_flow import natural_loops

_SASS = re.compile(r"\s+/\*[0-9a-f]+\*/\s+(?P<guard>@!?U?P[T0-9]+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<operands>[^;]*);")
_SASS_TARGET = re.compile(r"`\((?P<name>[^)]+)\)")
_AMD = re.compile(r"\t(?P<opcode>[a-z][a-z0-9_]+)(?P<operands>[^;\n]*)")
_LABEL = re.compile(r"(?P<name>[.$\w]+):")
_SASS_MATRIX = re.compile(r"(?P<kind>(UTC)?[A-Z]G?MMA)(?P<shape>\.[0-9x]+)?(\.|$)")
_AMD_MATRIX = re.compile(r"v_(?P<kind>mfma|smfmac|wmma|swmmac)_[a-z0-9]+_(?P<shape>[0-9x]+)")
_AMD_ACCESS = re.compile(
    r"(?P<memory>global|flat|buffer|scratch|ds)_(?P<way>load|read|store|write)(?P<two>2(st64)?)?_(?P<lds>lds_)?(?P<size>[a-z0-9]+)"
)
_AMD_BYTES = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2}
_SASS_LOADS = {"LDG": "global", "LDS": "shared", "LDL": "local", "LD": "generic", "LDGSTS": "async"}
_SASS_STORES = {"STG": "global", "STS": "shared", "STL": "local", "ST": "generic"}
_SASS_PLAIN = {  # whose width the instruction does not tell
    "UTMALDG": ("load", "descriptor"),
    "UBLKCP": ("load", "bulk"),
    "LDTM": ("load", "tensor memory"),
    "UTMASTG": ("store", "descriptor"),
    "STTM": ("store", "tensor memory"),
    **dict.fromkeys(("ATOM", "ATOMG", "RED", "REDG", "UTMAREDG"), ("store", "atomic")),
}


@dataclass(frozen=True)
class Instruction:
    """One instruction, and where it may go on."""

    opcode: str
    """With its modifiers, ``LDG.E.128`` or ``global_load_dwordx4``."""
    target: str | None = None
    """Label of a branch or call."""
    falls_through: bool = True
    """Whether the next instruction of the text may follow."""


@dataclass(frozen=True)
class Code:
    """A kernel's instructions in the order of the text, and the position of the instruction after each label."""

    instructions: list[Instruction]
    labels: dict[str, int]


@dataclass(frozen=True)
class Mix:
    """Instructions of a kernel or of its hottest loop, each counted once."""

    instructions: int
    matrix: Mapping[str, int] = field(default_factory=dict)
    """By kind and shape where the instruction has one: ``HGMMA.64x128x16``, ``UTCHMMA``."""
    exponentials: int = 0
    loads: Mapping[str, int] = field(default_factory=dict)
    """By memory and bytes of a thread, ``global 16 B``; ``async`` is from global to shared memory past registers."""
    stores: Mapping[str, int] = field(default_factory=dict)
    """The same; ``atomic`` are additions in memory."""

    @property
    def matrix_total(self) -> int:
        """Matrix instructions of all kinds."""
        return sum(self.matrix.values())

    @property
    def kinds(self) -> set[str]:
        """Kinds of matrix instructions without their shapes, ``{"HGMMA"}``."""
        return {name.split(".")[0] for name in self.matrix}

    @property
    def local_accesses(self) -> int:
        """Loads and stores of local memory, where spilled registers go."""
        return sum(n for counts in (self.loads, self.stores) for name, n in counts.items() if name.startswith("local"))

    @property
    def per_exponential(self) -> float | None:
        """Matrix instructions per exponential; None without either."""
        return self.matrix_total / self.exponentials if self.exponentials and self.matrix else None

    @property
    def per_load(self) -> float | None:
        """Matrix instructions per load of any memory; None without either."""
        return self.matrix_total / sum(self.loads.values()) if self.loads and self.matrix else None


def read_sass(text: str) -> Code:
    """The kernel in what ``nvdisasm -c`` prints."""
    return _read(text, _sass)


def read_amdgcn(text: str) -> Code:
    """The kernel in AMD's assembly, up to the end of its function."""
    return _read(text.split("\n.Lfunc_end", 1)[0], _amdgcn)


def mix_of(instructions: Iterable[Instruction]) -> Mix:
    """Counts of instructions."""
    opcodes = Counter(one.opcode for one in instructions)
    matrix: Counter[str] = Counter()
    accesses: dict[str, Counter[str]] = {"load": Counter(), "store": Counter()}
    for opcode, count in opcodes.items():
        if kind := _matrix_kind(opcode):
            matrix[kind] += count
        elif found := _amd_access(opcode) if opcode[0].islower() else _sass_access(opcode):
            way, memory = found
            accesses[way][memory] += count
    exponentials = sum(n for opcode, n in opcodes.items() if opcode.startswith(("MUFU.EX2", "v_exp_")))
    ordered = (dict(sorted(counts.items())) for counts in (matrix, accesses["load"], accesses["store"]))
    matrix_counts, loads, stores = ordered
    return Mix(opcodes.total(), matrix_counts, exponentials, loads, stores)


def hot_loop(code: Code) -> list[Instruction] | None:
    """The innermost loop that multiplies; None where a kernel has none.

    Of several it is the shortest among those with at least half as many products as the busiest: a kernel has a loop
    for blocks that are wholly visible and a longer one for blocks that are not, and the first runs most. Products are
    matrix instructions, or fused multiply-adds in a kernel that has none.
    """
    blocks, successors = _graph(code)
    matrix = any(_matrix_kind(one.opcode) for one in code.instructions)
    loops, bodies, products = natural_loops(successors), {}, {}
    for header, members in loops.items():
        bodies[header] = [code.instructions[i] for block in sorted(members) for i in blocks[block]]
        products[header] = sum(_multiplies(one.opcode, matrix) for one in bodies[header])
    busy = [header for header in loops if products[header]]
    inner = [header for header in busy if not any(loops[other] < loops[header] for other in busy)]
    if not inner:
        return None
    most = max(products[header] for header in inner)
    return min((bodies[header] for header in inner if 2 * products[header] >= most), key=len)


def _read(text: str, parse: Callable[[str], Instruction | None]) -> Code:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label["name"]] = len(instructions)
        elif one := parse(line):
            instructions.append(one)
    return Code(instructions, labels)


def _sass(line: str) -> Instruction | None:
    if (found := _SASS.match(line)) is None:
        return None
    opcode, operands = found["opcode"], found["operands"].strip()
    root, label = opcode.split(".")[0], _SASS_TARGET.search(operands)
    if label and root in ("BRA", "JMP", "CALL"):
        # Taken always without a guard and without a predicate before the label; a call comes back.
        always = root != "CALL" and not found["guard"] and operands.startswith("`")
        return Instruction(opcode, label["name"], not always)
    return Instruction(opcode, None, root not in ("EXIT", "RET", "BRX", "KILL") or bool(found["guard"]))


def _amdgcn(line: str) -> Instruction | None:
    if (found := _AMD.match(line)) is None:
        return None
    opcode = found["opcode"]
    if opcode.startswith(("s_branch", "s_cbranch")):
        return Instruction(opcode, found["operands"].strip(), opcode != "s_branch")
    return Instruction(opcode, None, opcode not in ("s_endpgm", "s_setpc_b64"))


def _graph(code: Code) -> tuple[list[range], list[list[int]]]:
    """Basic blocks as positions of instructions, and for each the blocks that may follow it."""
    count = len(code.instructions)
    after_jumps = (i for i, one in enumerate(code.instructions, 1) if one.target is not None or not one.falls_through)
    starts = sorted({start for start in (0, *code.labels.values(), *after_jumps) if start < count})
    blocks = [range(start, stop) for start, stop in pairwise([*starts, count])]
    number = {block.start: index for index, block in enumerate(blocks)}
    successors = []
    for block in blocks:
        last = code.instructions[block[-1]]
        ways = [block.stop] if last.falls_through else []
        ways += [code.labels[last.target]] if last.target in code.labels else []
        successors.append([number[way] for way in ways if way < count])
    return blocks, successors


def _matrix_kind(opcode: str) -> str | None:
    """``HMMA.16816``, ``HGMMA.64x128x16``, ``UTCHMMA``, ``MFMA.32x32x8``; None for another instruction."""
    if found := _AMD_MATRIX.match(opcode):
        return f"{found['kind'].upper()}.{found['shape']}"
    found = _SASS_MATRIX.match(opcode)
    return found["kind"] + (found["shape"] or "") if found else None


def _multiplies(opcode: str, matrix: bool) -> bool:
    """Whether an instruction is one of the products that a kernel is made of."""
    return bool(_matrix_kind(opcode)) if matrix else opcode.startswith(("FFMA", "v_fma", "v_pk_fma"))


def _sass_access(opcode: str) -> tuple[str, str] | None:
    """``load`` or ``store``, and the memory with bytes of a thread; None for what touches none but constants."""
    root, *parts = opcode.split(".")
    if root in _SASS_PLAIN:
        return _SASS_PLAIN[root]
    if root in ("LDSM", "STSM"):  # matrices of 8x8 elements of 16 bits, one to four at once
        matrices = int(parts[-1]) if parts[-1] in ("2", "4") else 1
        return ("load" if root == "LDSM" else "store"), f"shared {4 * matrices} B"
    way, memory = ("load", _SASS_LOADS.get(root)) if root in _SASS_LOADS else ("store", _SASS_STORES.get(root))
    if memory is None:
        return None
    bits = next((int(part) for part in parts if part in ("64", "128", "256")), None)
    bits = bits or next((int(part[1:]) for part in parts if part in ("U8", "S8", "U16", "S16")), 32)
    return way, f"{memory} {bits // 8} B"


def _amd_access(opcode: str) -> tuple[str, str] | None:
    """The same for AMD; scalar loads are of constants and arguments and not counted."""
    if "_atomic_" in opcode:
        return "store", "atomic"
    if (found := _AMD_ACCESS.match(opcode)) is None:
        return None
    size = found["size"]
    digits = re.sub(r"\D", "", size)
    if size in _AMD_BYTES:
        width = _AMD_BYTES[size]
    elif size.startswith("dword"):
        width = 4 * int(digits or 1)
    else:
        width = int(digits) // 8 * (2 if found["two"] else 1)
    memory = {"ds": "shared", "scratch": "local"}.get(found["memory"], "global")
    way = "load" if found["way"] in ("load", "read") else "store"
    return way, f"{'async' if found['lds'] else memory} {width} B"
