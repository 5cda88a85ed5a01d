"""Reading disassembly, on text as the tools print it; finding loops; fitting blocks onto a multiprocessor."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.control_flow import natural_loops
from bench.disassembly import amd_resources, nvidia_resources
from bench.errors import Unavailable
from bench.machine_code import Instruction, Mix, hot_loop, mix_of, read_amdgcn, read_sass
from bench.occupancy import LIMITS, occupancy

HEAD = """
	.headerflags	@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90"
//--------------------- .text.attention_forward   --------------------------
	.section	.text.attention_forward,"ax",@progbits
        .size           attention_forward,(.L_x_5 - attention_forward)
attention_forward:
.text.attention_forward:
"""


def sass(*lines: str) -> str:
    """As ``nvdisasm -c`` prints it: labels at the margin, instructions behind their address."""
    text = HEAD
    for number, line in enumerate(lines):
        text += f"{line}\n" if line.endswith(":") else f"        /*{16 * number:04x}*/  {line:>30} ;\n"
    return text


KERNEL = sass(
    "LDC R1, c[0x0][0x28]",
    "LDG.E.128 R4, desc[UR4][R2.64]",
    "@!P0 LDG.E R8, desc[UR4][R2.64+0x10]",
    "@!P0 BRA `(.L_x_0)",
    ".L_x_1:",
    "LDGSTS.E.BYPASS.128 [R9], desc[UR4][R10.64], P1",
    "LDSM.16.MT88.4 R12, [R9]",
    "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24",
    "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12], R24, gsb0",
    "@P2 MUFU.EX2 R5, R5",
    "MUFU.EX2 R6, R6",
    "MUFU.RCP R7, R7",
    "@P0 CALL.REL.NOINC `(.L_x_0)",
    "BRA `(.L_x_1)",
    ".L_x_0:",
    "LDS.U8 R7, [R9]",
    "STS.64 [R9], R4",
    "STG.E.128 desc[UR4][R2.64], R4",
    "RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R4",
    "REDUX.MIN.S32 UR4, R4",
    "HFMA2.MMA R4, -RZ, RZ, 0, 0",
    "EXIT",
    ".L_x_4:",
    "BRA `(.L_x_4)",
    ".L_x_5:",
)


def test_instructions_are_counted_by_kind_and_width() -> None:
    mix = mix_of(read_sass(KERNEL).instructions)
    assert mix.instructions == 21
    assert mix.matrix == {"HGMMA.64x128x16": 2} and mix.kinds == {"HGMMA"} and mix.matrix_total == 2
    assert mix.exponentials == 2
    assert mix.loads == {"async 16 B": 1, "global 16 B": 1, "global 4 B": 1, "shared 1 B": 1, "shared 16 B": 1}
    assert mix.stores == {"atomic": 1, "global 16 B": 1, "shared 8 B": 1}
    assert mix.local_accesses == 0
    assert (mix.per_exponential, mix.per_load) == (1, 2 / 5)


def test_the_loop_is_left_by_a_guarded_call_and_holds_what_lies_between() -> None:
    loop = hot_loop(read_sass(KERNEL))
    assert loop is not None
    assert [one.opcode for one in loop][:2] == ["LDGSTS.E.BYPASS.128", "LDSM.16.MT88.4"] and len(loop) == 9
    assert mix_of(loop).loads == {"async 16 B": 1, "shared 16 B": 1}


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("HMMA.16816.F32.BF16", "HMMA.16816"),
        ("HGMMA.64x64x16.F32", "HGMMA.64x64x16"),
        ("UTCHMMA", "UTCHMMA"),
        ("UTCHMMA.2CTA", "UTCHMMA"),
        ("UTCQMMA", "UTCQMMA"),
        ("QGMMA.64x128x32.F32.E4M3.E4M3", "QGMMA.64x128x32"),
        ("IMMA.16832.S8.S8", "IMMA.16832"),
        ("DMMA.884", "DMMA.884"),
        ("v_mfma_f32_32x32x8_bf16", "MFMA.32x32x8"),
        ("v_mfma_f32_16x16x16_f16", "MFMA.16x16x16"),
        ("v_smfmac_f32_32x32x16_bf16", "SMFMAC.32x32x16"),
        ("HFMA2.MMA", None),
        ("FFMA", None),
        ("WARPGROUP.ARRIVE", None),
        ("v_fma_f32", None),
    ],
)
def test_kinds_of_matrix_instructions(opcode: str, kind: str | None) -> None:
    assert mix_of([Instruction(opcode)]).matrix == ({} if kind is None else {kind: 1})


@pytest.mark.parametrize(
    ("opcode", "loads", "stores"),
    [
        ("LDG.E.ENL2.256", "global 32 B", None),
        ("LDG.E.U16.CONSTANT", "global 2 B", None),
        ("LDS.128", "shared 16 B", None),
        ("LDSM.16.M88.2", "shared 8 B", None),
        ("LDSM.16.M88", "shared 4 B", None),
        ("LDL.LU", "local 4 B", None),
        ("LDL.64", "local 8 B", None),
        ("UTMALDG.2D", "descriptor", None),
        ("LDTM.x64", "tensor memory", None),
        ("LDC.64", None, None),
        ("LDCU.128", None, None),
        ("LDGDEPBAR", None, None),
        ("SHFL.BFLY", None, None),
        ("STL", None, "local 4 B"),
        ("STSM.16.M88.4", None, "shared 16 B"),
        ("UTMASTG.2D", None, "descriptor"),
        ("STTM.16dp32bit_t0_t15.x16", None, "tensor memory"),
        ("ATOMG.E.ADD.F32.FTZ.RN.STRONG.GPU", None, "atomic"),
        ("global_load_dwordx4", "global 16 B", None),
        ("global_load_dword", "global 4 B", None),
        ("global_load_ushort", "global 2 B", None),
        ("global_load_short_d16_hi", "global 2 B", None),
        ("buffer_load_dwordx3", "global 12 B", None),
        ("global_load_lds_dwordx4", "async 16 B", None),
        ("ds_read2st64_b64", "shared 16 B", None),
        ("ds_read_u16_d16", "shared 2 B", None),
        ("ds_read_b128", "shared 16 B", None),
        ("scratch_load_dwordx2", "local 8 B", None),
        ("s_load_dwordx4", None, None),
        ("ds_bpermute_b32", None, None),
        ("scratch_store_dword", None, "local 4 B"),
        ("ds_write2_b32", None, "shared 8 B"),
        ("ds_write_b16", None, "shared 2 B"),
        ("buffer_store_dwordx2", None, "global 8 B"),
        ("global_atomic_add_f32", None, "atomic"),
    ],
)
def test_memory_and_width_of_an_access(opcode: str, loads: str | None, stores: str | None) -> None:
    mix = mix_of([Instruction(opcode)])
    assert mix.loads == ({loads: 1} if loads else {})
    assert mix.stores == ({stores: 1} if stores else {})
    assert mix.local_accesses == ("local" in f"{loads}{stores}")


def loop(name: str, *body: str) -> list[str]:
    return [f"{name}:", *body, f"@P0 BRA `({name})"]


def test_a_branch_back_from_behind_the_end_makes_no_loop_of_what_lies_between() -> None:
    """As on sm_100: a barrier is tried once in the loop, and again and again after the end of the kernel."""
    code = read_sass(
        sass(
            ".L_x_1:",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R4",
            "@!P1 BRA `(.L_x_3)",
            ".L_x_2:",
            "UTCHMMA gdesc[UR6], gdesc[UR8], tmem[UR12], tmem[UR56], idesc[UR57], !UPT",
            "@P0 BRA `(.L_x_1)",
            *loop(".L_x_7", "UTCHMMA gdesc[UR6]", *["FSEL R4, R4, -INF, P3"] * 9),
            "EXIT",
            ".L_x_3:",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R4",
            "@!P1 BRA `(.L_x_3)",
            "BRA `(.L_x_2)",
        )
    )
    found = hot_loop(code)
    assert found is not None
    assert mix_of(found).matrix == {"UTCHMMA": 1}
    assert not any(one.opcode == "FSEL" for one in found), "the loop that masks is longer"
    assert not any(one.opcode == "EXIT" for one in found)


def test_of_nested_loops_the_inner_one_and_a_short_tail_is_not_the_loop() -> None:
    code = read_sass(
        sass(
            ".L_x_0:",
            "MOV R1, R2",
            *loop(".L_x_1", *["HMMA.16816.F32 R4, R8, R12, R4"] * 8, "MUFU.EX2 R3, R3"),
            *loop(".L_x_2", "HMMA.16816.F32 R4, R8, R12, R4"),
            "@P1 BRA `(.L_x_0)",
            "EXIT",
        )
    )
    found = hot_loop(code)
    assert found is not None
    assert mix_of(found).matrix == {"HMMA.16816": 8} and mix_of(found).exponentials == 1


def test_without_matrix_instructions_the_loop_is_where_the_multiplying_is() -> None:
    code = read_sass(
        sass(*loop(".L_x_0", "IADD3 R1, R1, 1, RZ"), *loop(".L_x_1", *["FFMA R1, R2, R3, R1"] * 4), "EXIT")
    )
    found = hot_loop(code)
    assert found is not None and sum(one.opcode == "FFMA" for one in found) == 4
    mix = mix_of(found)
    assert mix.per_exponential is None and mix.per_load is None, "there is nothing to be divided"


@pytest.mark.parametrize("text", ["", sass("EXIT"), sass(*loop(".L_x_0", "IADD3 R1, R1, 1, RZ"), "EXIT")])
def test_a_kernel_may_have_no_loop(text: str) -> None:
    assert hot_loop(read_sass(text)) is None


AMDGCN = """\
	.text
	.globl	attention_forward
attention_forward:                      ; @attention_forward
.Lfunc_begin0:
	.cfi_sections .debug_frame
; %bb.0:
	s_load_dwordx4 s[8:11], s[0:1], 0x0
	s_branch .LBB0_0
.LBB0_0:
	global_load_dwordx4 v[36:39], v[32:33], off ; a comment
	s_cbranch_scc1 .LBB0_35
.LBB0_34:                               ; =>This Inner Loop Header: Depth=1
	.loc	2 110 22 is_stmt 1              ; tiles.py:110:22
	ds_read_b128 v[40:43], v10 offset:4096
	v_mfma_f32_32x32x8_bf16 v[0:15], v[92:93], v[38:39], v[0:15]
	v_exp_f32_e32 v1, v1
	s_cbranch_scc1 .LBB0_34
.LBB0_35:
	global_store_dwordx2 v[0:1], v[2:3], off
	s_endpgm
.Lfunc_end0:
	.size	attention_forward, .Lfunc_end0-attention_forward
; codeLenInByte = 14168
	v_mov_b32_e32 v155, v106
    .private_segment_fixed_size: 24
    .vgpr_count:     205
    .agpr_count:     8
"""


def test_assembly_of_amd_is_read_up_to_the_end_of_the_function() -> None:
    code = read_amdgcn(AMDGCN)
    assert mix_of(code.instructions) == Mix(
        10, {"MFMA.32x32x8": 1}, 1, {"global 16 B": 1, "shared 16 B": 1}, {"global 8 B": 1}
    )
    found = hot_loop(code)
    assert found is not None and len(found) == 4
    assert amd_resources(AMDGCN).registers == 205
    assert amd_resources(AMDGCN).stack_bytes == 24
    assert amd_resources(AMDGCN).code_bytes == 14_168


def test_spills_of_nvidia_are_in_the_stack_and_not_where_it_says_local() -> None:
    text = " Function attention_forward:\n  REG:128 STACK:8 SHARED:1024 LOCAL:0 CONSTANT[0]:544 TEXTURE:0\n"
    found = nvidia_resources(text, 100)
    assert (found.registers, found.stack_bytes, found.code_bytes) == (128, 8, 1600)
    with pytest.raises(Unavailable, match="STACK"):
        nvidia_resources(" Function f:\n  REG:128\n", 100)


# Loops of random programs, against the definition: a loop's header is passed on every way to its members.


@given(st.lists(st.lists(st.integers(0, 7), max_size=2), min_size=8, max_size=8))
def test_loops_are_what_the_definition_says(graph: list[list[int]]) -> None:
    def reached(without: int | None) -> set[int]:
        seen: set[int] = set()
        waiting = [0]
        while waiting:
            if (one := waiting.pop()) not in seen and one != without:
                seen.add(one)
                waiting += graph[one]
        return seen

    everywhere = reached(None)
    dominated = {header: (everywhere - reached(header)) | {header} for header in everywhere}
    back = [(block, header) for block in everywhere for header in graph[block] if block in dominated[header]]
    loops = natural_loops(graph)
    assert set(loops) == {header for _, header in back}
    for header, body in loops.items():
        assert header in body and body <= everywhere
        assert all(block in dominated[header] for block in body)
        assert all(block in body for block, to in back if to == header)


# Occupancy: values that NVIDIA's calculator and LLVM's remarks give.


@pytest.mark.parametrize(
    ("target", "warps", "registers", "shared", "columns", "blocks", "limited_by"),
    [
        ("sm_80", 4, 32, 0, 0, 16, "warps"),
        ("sm_80", 8, 255, 0, 0, 1, "registers"),
        ("sm_80", 8, 128, 0, 0, 2, "registers"),
        ("sm_80", 8, 129, 0, 0, 1, "registers"),
        ("sm_80", 4, 168, 0, 0, 3, "registers"),
        ("sm_80", 1, 16, 0, 0, 32, "blocks"),
        ("sm_80", 4, 64, 81 * 1024, 0, 2, "shared memory"),
        ("sm_80", 4, 64, 82 * 1024, 0, 1, "shared memory"),
        ("sm_80", 4, 64, 164 * 1024, 0, 0, "shared memory"),
        ("sm_90", 4, 64, 113 * 1024, 0, 2, "shared memory"),
        ("sm_90", 4, 64, 227 * 1024, 0, 1, "shared memory"),
        ("sm_90", 4, 64, 227 * 1024 + 1, 0, 0, "shared memory"),
        ("sm_90", 16, 128, 0, 0, 1, "registers"),
        ("sm_90", 16, 130, 0, 0, 0, "registers"),
        ("sm_100", 4, 64, 0, 256, 2, "tensor memory"),
        ("sm_100", 4, 64, 0, 512, 1, "tensor memory"),
        ("gfx942", 4, 205, 0, 0, 2, "registers"),
        ("gfx942", 4, 256, 0, 0, 2, "registers"),
        ("gfx942", 4, 257, 0, 0, 1, "registers"),
        ("gfx942", 4, 64, 32 * 1024, 0, 2, "shared memory"),
        ("gfx942", 4, 64, 0, 0, 8, "warps"),
    ],
)
def test_blocks_of_a_multiprocessor(
    target: str, warps: int, registers: int, shared: int, columns: int, blocks: int, limited_by: str
) -> None:
    found = occupancy(LIMITS[target], warps, registers, shared, columns)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.warps == blocks * warps and found.share == found.warps / LIMITS[target].warps


@given(
    st.sampled_from(sorted(LIMITS)),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(1, 255),
    st.integers(0, 300_000),
    st.sampled_from([0, 32, 256]),
)
def test_more_of_anything_never_fits_more_blocks(
    target: str, warps: int, registers: int, shared: int, columns: int
) -> None:
    limits = LIMITS[target]
    found = [
        occupancy(limits, warps, registers, shared, columns),
        occupancy(limits, warps, registers + 1, shared, columns),
        occupancy(limits, warps, registers + 1, shared + 100, columns),
        occupancy(limits, 2 * warps, registers + 1, shared + 100, columns),
    ]
    assert all(more.blocks <= fewer.blocks for fewer, more in pairwise(found))
    for one in found:
        assert one.warps <= limits.warps and one.blocks * shared <= limits.shared_bytes


@pytest.mark.parametrize("target", LIMITS)
def test_limits_are_told_with_their_source(target: str) -> None:
    told = LIMITS[target].explained()
    assert f"{LIMITS[target].registers:,} registers" in told and " KB" in told
    assert ("ISA" in told) or ("Guide" in told)
