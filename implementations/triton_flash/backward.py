"""Backward kernels: gradients by recomputation, without atomic additions, so that they repeat bit for bit.

With ``D = rowsum(dout * out)``, and weights recomputed from the statistics of the forward pass::

    p = 2 ** ((s - m) * c - log2(l))     dv = p^T dout     dp = dout v^T     ds = p * (dp - D)
    dq = scale * ds k                    dk = scale * ds^T q

Three launches: ``D`` for each row; dk and dv, where a program owns a block of keys and walks over the queries that
see it, of all query heads of the group; dq, where a program owns a block of queries and walks over the keys that it
sees. Scores are computed twice for that; the price of two sums in a fixed order. The dk/dv kernel works on transposed
scores (keys by queries), so that ``p`` and ``ds`` are left operands straight from registers.

A gradient that flows into ``lse`` adds ``p * dlse`` to ``ds``: it is taken off ``D``.

Source: Dao, FlashAttention-2 (2023), algorithm 2.
"""

from __future__ import annotations

import triton.language as tl

from implementations.triton_flash.tiles import (
    block_ranges,
    hide,
    inline,
    kernel,
    load_line,
    load_tile,
    partial_block,
    round_to,
    signed,
    store_tile,
    visible,
)


@kernel
def attention_delta(
    out_ptr,
    dout_ptr,
    dlse_ptr,
    delta_ptr,
    stride_ob,
    stride_oh,
    stride_ot,
    stride_od,
    stride_gb,
    stride_gh,
    stride_gt,
    stride_gd,
    stride_lb,
    stride_lh,
    stride_lt,
    num_heads_q,
    seqlen_q,
    num_blocks,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """``delta = rowsum(dout * out) - dlse`` of one block of queries of one head.

    Args:
        out_ptr, dout_ptr: ``(batch_size, num_heads_q, seqlen_q, head_dim_v)``, any strides.
        dlse_ptr: float32 ``(batch_size, num_heads_q, seqlen_q)``, any strides, or None.
        delta_ptr: float32 ``(batch_size, num_heads_q, seqlen_q)``, contiguous.
    """
    program = tl.program_id(0)
    block = program % num_blocks
    head = (program // num_blocks % num_heads_q).to(tl.int64)
    item = (program // num_blocks // num_heads_q).to(tl.int64)
    row_start = (block * BLOCK_M).to(tl.int64)
    rows, dims, rows_left = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_DV), seqlen_q - block * BLOCK_M
    out_base = out_ptr + item * stride_ob + head * stride_oh + row_start * stride_ot
    dout_base = dout_ptr + item * stride_gb + head * stride_gh + row_start * stride_gt
    out = load_tile(out_base, rows, dims, stride_ot, stride_od, rows_left, HEAD_DIM_V, BLOCK_DV, True)
    dout = load_tile(dout_base, rows, dims, stride_gt, stride_gd, rows_left, HEAD_DIM_V, BLOCK_DV, True)
    delta = tl.reduce(out.to(tl.float32) * dout.to(tl.float32), 1, tl.standard._sum_combine)
    if dlse_ptr is not None:
        dlse_base = dlse_ptr + item * stride_lb + head * stride_lh + row_start * stride_lt
        delta -= tl.load(dlse_base + rows.to(tl.int64) * stride_lt, mask=rows < rows_left, other=0.0)
    line = (item * num_heads_q + head) * seqlen_q + row_start + rows
    tl.store(delta_ptr + line, delta, mask=rows < rows_left)


@inline
def gather_keys(
    dk,
    dv,
    k,
    v,
    q_base,
    dout_base,
    stats_base,
    delta_base,
    plane,
    stride_qh,
    stride_qt,
    stride_qd,
    stride_gh,
    stride_gt,
    stride_gd,
    member,
    start,
    first,
    stop,
    seqlen_q,
    exponent_scale,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr,
    MASKED: tl.constexpr,
    LOW: tl.constexpr,
):
    """dk and dv after the queries at ``start``; k carries the sign of the scale. MASKED: not all see all keys."""
    rows, rows_left = tl.arange(0, BLOCK_M), seqlen_q - start
    offset, head = tl.cast(start, tl.int64), tl.cast(member, tl.int64)
    dims, dims_v = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    line = head * seqlen_q + start + rows
    q_base += head * stride_qh + offset * stride_qt
    dout_base += head * stride_gh + offset * stride_gt
    q = load_tile(q_base, rows, dims, stride_qt, stride_qd, rows_left, HEAD_DIM, BLOCK_D, MASKED)
    # Beyond the last query nothing is seen, so what stands there does not matter as long as it is finite.
    m = load_line(stats_base + line, rows < rows_left, MASKED)
    log_sum = load_line(stats_base + plane + line, rows < rows_left, MASKED)
    s = tl.dot(k, tl.trans(q), input_precision="ieee")
    if MASKED:
        s = hide(s, start + rows, first, stop, LOW)
    p = tl.exp2((s - m[None, :]) * exponent_scale - log_sum[None, :])
    dout = load_tile(dout_base, rows, dims_v, stride_gt, stride_gd, rows_left, HEAD_DIM_V, BLOCK_DV, MASKED)
    dv = tl.dot(round_to(p, dout_base.dtype.element_ty), dout, dv, input_precision="ieee")
    dp = tl.dot(v, tl.trans(dout), input_precision="ieee")
    delta = load_line(delta_base + line, rows < rows_left, MASKED)  # this late, to hold no registers meanwhile
    ds = p * (dp - delta[None, :])
    dk = tl.dot(round_to(ds, q_base.dtype.element_ty), q, dk, input_precision="ieee")
    return dk, dv


@kernel
def attention_backward_keys(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    stats_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    key_first_ptr,
    key_stop_ptr,
    first_table_ptr,
    stop_table_ptr,
    stride_qb,
    stride_qh,
    stride_qt,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_kt,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vt,
    stride_vd,
    stride_gb,
    stride_gh,
    stride_gt,
    stride_gd,
    stride_dkb,
    stride_dkh,
    stride_dkt,
    stride_dkd,
    stride_dvb,
    stride_dvh,
    stride_dvt,
    stride_dvd,
    table_stride,
    left,
    right,
    scale,
    exponent_scale,
    batch_size,
    num_heads_kv,
    group,
    seqlen_q,
    seqlen_k,
    num_blocks,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    SIGN: tl.constexpr,
    LOW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """dk and dv of one block of keys of one key head, summed over the query heads of its group in order.

    Here the band is that of queries seen from keys, ``j + left <= i <= j + right``, and the tables hold the queries
    that see each key; ``scale`` is the scale with its sign. Under a causal mask the first block has the most
    queries and goes first.
    """
    program = tl.program_id(0)
    block = program % num_blocks
    kv_head = (program // num_blocks % num_heads_kv).to(tl.int64)
    item = (program // num_blocks // num_heads_kv).to(tl.int64)
    key_start = (block * BLOCK_N).to(tl.int64)
    keys, dims, dims_v = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    keys_left = seqlen_k - block * BLOCK_N

    index = tl.minimum(block * BLOCK_N + keys, seqlen_k - 1)
    first, stop = visible(index, left, right, first_table_ptr, stop_table_ptr, item * table_stride, seqlen_q)
    if key_first_ptr is not None:
        valid = (index >= tl.load(key_first_ptr + item)) & (index < tl.load(key_stop_ptr + item))
        stop = tl.where(valid, stop, 0)
    begin, before, whole, whole_end, after = block_ranges(first, stop, BLOCK_M)

    k_base = k_ptr + item * stride_kb + kv_head * stride_kh + key_start * stride_kt
    v_base = v_ptr + item * stride_vb + kv_head * stride_vh + key_start * stride_vt
    k = signed(load_tile(k_base, keys, dims, stride_kt, stride_kd, keys_left, HEAD_DIM, BLOCK_D, True), SIGN)
    v = load_tile(v_base, keys, dims_v, stride_vt, stride_vd, keys_left, HEAD_DIM_V, BLOCK_DV, True)
    dk = tl.full([BLOCK_N, BLOCK_D], 0.0, tl.float32)
    dv = tl.full([BLOCK_N, BLOCK_DV], 0.0, tl.float32)
    q_base = q_ptr + item * stride_qb + kv_head * group * stride_qh
    dout_base = dout_ptr + item * stride_gb + kv_head * group * stride_gh
    line = (item * num_heads_kv + kv_head) * group * seqlen_q
    plane = (batch_size * num_heads_kv).to(tl.int64) * group * seqlen_q
    # Heads and blocks are one loop, which is pipelined across heads and needs fewer registers than two.
    blocks = (whole_end - whole) // BLOCK_M
    for step in range(group * blocks):
        member = step // blocks
        start = whole + (step - member * blocks) * BLOCK_M
        dk, dv = gather_keys(
            dk, dv, k, v, q_base, dout_base, stats_ptr + line, delta_ptr + line, plane, stride_qh, stride_qt, stride_qd,
            stride_gh, stride_gt, stride_gd, member, start, first, stop, seqlen_q, exponent_scale,
            HEAD_DIM, HEAD_DIM_V, BLOCK_D, BLOCK_DV, BLOCK_M, False, LOW,
        )  # fmt: skip
    blocks = before + after
    for step in range(group * blocks):
        member = step // blocks
        start = partial_block(step - member * blocks, begin, before, whole_end, BLOCK_M)
        dk, dv = gather_keys(
            dk, dv, k, v, q_base, dout_base, stats_ptr + line, delta_ptr + line, plane, stride_qh, stride_qt, stride_qd,
            stride_gh, stride_gt, stride_gd, member, start, first, stop, seqlen_q, exponent_scale,
            HEAD_DIM, HEAD_DIM_V, BLOCK_D, BLOCK_DV, BLOCK_M, True, LOW,
        )  # fmt: skip

    dk_base = dk_ptr + item * stride_dkb + kv_head * stride_dkh + key_start * stride_dkt
    dv_base = dv_ptr + item * stride_dvb + kv_head * stride_dvh + key_start * stride_dvt
    store_tile(dk_base, dk * scale, keys, dims, stride_dkt, stride_dkd, keys_left, HEAD_DIM, BLOCK_D)
    store_tile(dv_base, dv, keys, dims_v, stride_dvt, stride_dvd, keys_left, HEAD_DIM_V, BLOCK_DV)


@inline
def gather_queries(
    dq,
    q,
    dout,
    m,
    log_sum,
    delta,
    k_base,
    v_base,
    stride_kt,
    stride_kd,
    stride_vt,
    stride_vd,
    start,
    first,
    stop,
    seqlen_k,
    exponent_scale,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
    LOW: tl.constexpr,
):
    """dq after the keys at ``start``; q carries the sign of the scale. MASKED: some row may not see all of them."""
    keys, keys_left = tl.arange(0, BLOCK_N), seqlen_k - start
    offset, dims, dims_v = tl.cast(start, tl.int64), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    k = load_tile(k_base + offset * stride_kt, keys, dims, stride_kt, stride_kd, keys_left, HEAD_DIM, BLOCK_D, MASKED)
    v = load_tile(
        v_base + offset * stride_vt, keys, dims_v, stride_vt, stride_vd, keys_left, HEAD_DIM_V, BLOCK_DV, MASKED
    )
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    if MASKED:
        s = hide(s, start + keys, first, stop, LOW)
    p = tl.exp2((s - m[:, None]) * exponent_scale - log_sum[:, None])
    dp = tl.dot(dout, tl.trans(v), input_precision="ieee")
    ds = p * (dp - delta[:, None])
    return tl.dot(round_to(ds, k_base.dtype.element_ty), k, dq, input_precision="ieee")


@kernel
def attention_backward_queries(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    stats_ptr,
    delta_ptr,
    dq_ptr,
    key_first_ptr,
    key_stop_ptr,
    first_table_ptr,
    stop_table_ptr,
    stride_qb,
    stride_qh,
    stride_qt,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_kt,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vt,
    stride_vd,
    stride_gb,
    stride_gh,
    stride_gt,
    stride_gd,
    stride_dqb,
    stride_dqh,
    stride_dqt,
    stride_dqd,
    table_stride,
    left,
    right,
    scale,
    exponent_scale,
    batch_size,
    num_heads_q,
    group,
    seqlen_q,
    seqlen_k,
    num_blocks,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    SIGN: tl.constexpr,
    LOW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """dq of one block of queries of one head; band and tables as in the forward pass, ``scale`` with its sign."""
    program = tl.program_id(0)
    block = num_blocks - 1 - program % num_blocks
    head = (program // num_blocks % num_heads_q).to(tl.int64)
    item = (program // num_blocks // num_heads_q).to(tl.int64)
    kv_head = head // group
    row_start = (block * BLOCK_M).to(tl.int64)
    rows, dims, dims_v = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    rows_left = seqlen_q - block * BLOCK_M

    index = tl.minimum(block * BLOCK_M + rows, seqlen_q - 1)
    first, stop = visible(index, left, right, first_table_ptr, stop_table_ptr, item * table_stride, seqlen_k)
    if key_first_ptr is not None:
        first = tl.maximum(first, tl.load(key_first_ptr + item))
        stop = tl.minimum(stop, tl.load(key_stop_ptr + item))
    begin, before, whole, whole_end, after = block_ranges(first, stop, BLOCK_N)

    q_base = q_ptr + item * stride_qb + head * stride_qh + row_start * stride_qt
    dout_base = dout_ptr + item * stride_gb + head * stride_gh + row_start * stride_gt
    q = signed(load_tile(q_base, rows, dims, stride_qt, stride_qd, rows_left, HEAD_DIM, BLOCK_D, True), SIGN)
    dout = load_tile(dout_base, rows, dims_v, stride_gt, stride_gd, rows_left, HEAD_DIM_V, BLOCK_DV, True)
    line = (item * num_heads_q + head) * seqlen_q + row_start + rows
    plane = (batch_size * num_heads_q).to(tl.int64) * seqlen_q
    m = load_line(stats_ptr + line, rows < rows_left, True)
    log_sum = load_line(stats_ptr + plane + line, rows < rows_left, True)
    delta = load_line(delta_ptr + line, rows < rows_left, True)
    k_base = k_ptr + item * stride_kb + kv_head * stride_kh
    v_base = v_ptr + item * stride_vb + kv_head * stride_vh
    dq = tl.full([BLOCK_M, BLOCK_D], 0.0, tl.float32)
    for start in range(whole, whole_end, BLOCK_N):
        dq = gather_queries(
            dq, q, dout, m, log_sum, delta, k_base, v_base, stride_kt, stride_kd, stride_vt, stride_vd,
            start, first, stop, seqlen_k, exponent_scale,
            HEAD_DIM, HEAD_DIM_V, BLOCK_D, BLOCK_DV, BLOCK_N, False, LOW,
        )  # fmt: skip
    for number in range(before + after):
        start = partial_block(number, begin, before, whole_end, BLOCK_N)
        dq = gather_queries(
            dq, q, dout, m, log_sum, delta, k_base, v_base, stride_kt, stride_kd, stride_vt, stride_vd,
            start, first, stop, seqlen_k, exponent_scale,
            HEAD_DIM, HEAD_DIM_V, BLOCK_D, BLOCK_DV, BLOCK_N, True, LOW,
        )  # fmt: skip

    dq_base = dq_ptr + item * stride_dqb + head * stride_dqh + row_start * stride_dqt
    store_tile(dq_base, dq * scale, rows, dims, stride_dqt, stride_dqd, rows_left, HEAD_DIM, BLOCK_D)
