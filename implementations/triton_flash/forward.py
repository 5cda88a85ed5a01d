"""Forward kernels: one for many queries, one for few queries and long keys, and the one that joins the latter's parts.

Per row of queries three things are carried over the key blocks: the running maximum ``m`` of the raw scores, the
exponential sum ``l`` and the value sum ``acc``, with ``p = 2 ** ((s - m) * c)`` and ``c = |scale| * log2(e)``. The
maximum is subtracted before the factor is applied, which costs one more instruction than a fused multiply-add and
has no range: however large the scores are, the largest weight is exactly 1. The sign of the scale is applied to
the stationary operand, where it is exact, so maxima are maxima of scaled scores for every scale.

For the backward pass ``m`` and ``log2(l)`` are kept apart (``stats``): their sum would round ``log2(l)`` away where
scores are large. A row that sees nothing has ``stats = (0, inf)``, hence weights ``2 ** -inf``, and ``lse = -inf``.

Source: Milakov and Gimelshein (2018), algorithm 3; Dao, FlashAttention-2 (2023), algorithm 1; Flash-Decoding (2023).
"""

from __future__ import annotations

import triton.language as tl

from implementations.triton_flash.tiles import (
    LOWEST,
    block_ranges,
    hide,
    inline,
    kernel,
    load_tile,
    partial_block,
    round_to,
    seen_range,
    signed,
    store_tile,
    visible,
    widened,
)

LN2 = tl.constexpr(0.6931471805599453)


@inline
def attend(
    acc,
    m,
    l_sum,
    q,
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
    """The running state after the key block at ``start``; MASKED: some row may not see all of it."""
    keys, left_over = tl.arange(0, BLOCK_N), seqlen_k - start
    offset, dims, dims_v = tl.cast(start, tl.int64), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    k = load_tile(k_base + offset * stride_kt, keys, dims, stride_kt, stride_kd, left_over, HEAD_DIM, BLOCK_D, MASKED)
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    if MASKED:
        s = hide(s, start + keys, first, stop, LOW)
    m_new = tl.maximum(m, tl.reduce(s, 1, tl.standard._elementwise_max))
    p = tl.exp2((s - m_new[:, None]) * exponent_scale)
    decay = tl.exp2((m - m_new) * exponent_scale)
    l_sum = l_sum * decay + tl.reduce(p, 1, tl.standard._sum_combine)
    v = load_tile(
        v_base + offset * stride_vt, keys, dims_v, stride_vt, stride_vd, left_over, HEAD_DIM_V, BLOCK_DV, MASKED
    )
    acc = tl.dot(round_to(p, v_base.dtype.element_ty), v, acc * decay[:, None], input_precision="ieee")
    return acc, m_new, l_sum


@inline
def finish(m, l_sum, scale):
    """Natural-log LSE and the two statistics of the backward pass, for rows with ``l == 0`` as well."""
    some = l_sum > 0
    log_sum = tl.log2(tl.where(some, l_sum, 1.0))
    lse = tl.where(some, m * scale + log_sum * LN2, float("-inf"))
    return lse, tl.where(some, m, 0.0), tl.where(some, log_sum, float("inf"))


@kernel
def attention_forward(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    stats_ptr,
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
    stride_ob,
    stride_oh,
    stride_ot,
    stride_od,
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
    """One block of queries of one head: out, lse, and the statistics where ``stats_ptr`` is given.

    The grid is one axis, ``num_blocks * num_heads_q * batch_size``: neighbours share a head, whose keys stay in
    cache, and the last block of queries, the one with the most keys under a causal mask, goes first.

    Args:
        q_ptr, k_ptr, v_ptr, out_ptr: tensors of the shapes of ``bench.implementation``, any strides.
        lse_ptr: float32 ``(batch_size, num_heads_q, seqlen_q)``, contiguous.
        stats_ptr: float32 ``(2, batch_size, num_heads_q, seqlen_q)``, contiguous, or None.
        key_first_ptr, key_stop_ptr: int32 ``(batch_size,)``: valid keys of each batch item, or None.
        first_table_ptr, stop_table_ptr: int32 ``(batch_size or 1, seqlen_q)``: keys that each query sees, or None.
        table_stride: ``seqlen_q``, or 0 where all batch items share a table.
        left, right: the band ``i + left <= j <= i + right``, each may be None.
        scale: magnitude of the scale.
        exponent_scale: the same times ``log2(e)``, at least the smallest normal number.
        group: query heads per key head.
        SIGN: sign of the scale, 0 for a scale of 0.
        LOW: whether the first keys of a block can be hidden from some row.
    """
    program = tl.program_id(0)
    block = num_blocks - 1 - program % num_blocks
    head = (program // num_blocks % num_heads_q).to(tl.int64)
    item = (program // num_blocks // num_heads_q).to(tl.int64)
    kv_head = head // group
    row_start = (block * BLOCK_M).to(tl.int64)
    rows, dims, dims_v = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    rows_left = seqlen_q - block * BLOCK_M

    table = item * table_stride
    index = tl.minimum(block * BLOCK_M + rows, seqlen_q - 1)
    first, stop = visible(index, left, right, first_table_ptr, stop_table_ptr, table, seqlen_k)
    if key_first_ptr is not None:
        first = tl.maximum(first, tl.load(key_first_ptr + item))
        stop = tl.minimum(stop, tl.load(key_stop_ptr + item))
    begin, before, whole, whole_end, after = block_ranges(first, stop, BLOCK_N)

    q_base = q_ptr + item * stride_qb + head * stride_qh + row_start * stride_qt
    q = load_tile(q_base, rows, dims, stride_qt, stride_qd, rows_left, HEAD_DIM, BLOCK_D, True)
    q = signed(q, SIGN)
    k_base = k_ptr + item * stride_kb + kv_head * stride_kh
    v_base = v_ptr + item * stride_vb + kv_head * stride_vh
    m = tl.full([BLOCK_M], LOWEST, tl.float32)
    l_sum = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for start in range(whole, whole_end, BLOCK_N):
        acc, m, l_sum = attend(
            acc, m, l_sum, q, k_base, v_base, stride_kt, stride_kd, stride_vt, stride_vd, start, first, stop, seqlen_k,
            exponent_scale, HEAD_DIM, HEAD_DIM_V, BLOCK_D, BLOCK_DV, BLOCK_N, False, LOW,
        )  # fmt: skip
    for number in range(before + after):
        start = partial_block(number, begin, before, whole_end, BLOCK_N)
        acc, m, l_sum = attend(
            acc, m, l_sum, q, k_base, v_base, stride_kt, stride_kd, stride_vt, stride_vd, start, first, stop, seqlen_k,
            exponent_scale, HEAD_DIM, HEAD_DIM_V, BLOCK_D, BLOCK_DV, BLOCK_N, True, LOW,
        )  # fmt: skip

    lse, largest, log_sum = finish(m, l_sum, scale)
    line = (item * num_heads_q + head) * seqlen_q + row_start + rows
    tl.store(lse_ptr + line, lse, mask=rows < rows_left)
    if stats_ptr is not None:
        plane = (batch_size * num_heads_q).to(tl.int64) * seqlen_q
        tl.store(stats_ptr + line, largest, mask=rows < rows_left)
        tl.store(stats_ptr + plane + line, log_sum, mask=rows < rows_left)
    acc = acc / tl.where(l_sum > 0, l_sum, 1.0)[:, None]
    out_base = out_ptr + item * stride_ob + head * stride_oh + row_start * stride_ot
    store_tile(out_base, acc, rows, dims_v, stride_ot, stride_od, rows_left, HEAD_DIM_V, BLOCK_DV)


@kernel
def attention_forward_split(
    q_ptr,
    k_ptr,
    v_ptr,
    acc_ptr,
    sums_ptr,
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
    table_stride,
    left,
    right,
    exponent_scale,
    batch_size,
    num_heads_kv,
    group,
    seqlen_q,
    seqlen_k,
    num_splits,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    SIGN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """One share of the keys for all queries of one group of heads, which share their keys and are one block of rows.

    Row ``r`` is query ``r // group`` of head ``r % group``. Each of the ``num_splits`` programs of a key head takes an
    equal share of the key blocks that some row sees, and leaves its sums; every block is masked, as there are few.

    Args:
        acc_ptr: float32 ``(num_splits, batch_size, num_heads_kv, seqlen_q * group, head_dim_v)``: value sums.
        sums_ptr: float32 ``(2, num_splits, batch_size, num_heads_kv, seqlen_q * group)``: ``m`` and ``l``.
        others: as for :func:`attention_forward`.
    """
    program = tl.program_id(0)
    split = program % num_splits
    kv_head = (program // num_splits % num_heads_kv).to(tl.int64)
    item = (program // num_splits // num_heads_kv).to(tl.int64)
    rows, dims, dims_v = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_DV)
    total = seqlen_q * group

    index = tl.minimum(rows, total - 1) // group
    first, stop = visible(index, left, right, first_table_ptr, stop_table_ptr, item * table_stride, seqlen_k)
    if key_first_ptr is not None:
        first = tl.maximum(first, tl.load(key_first_ptr + item))
        stop = tl.minimum(stop, tl.load(key_stop_ptr + item))
    begin, end = seen_range(first, stop, BLOCK_N)
    share = ((end - begin + BLOCK_N - 1) // BLOCK_N + num_splits - 1) // num_splits * BLOCK_N

    query = rows // group
    q_rows = query.to(tl.int64) * stride_qt + (rows - query * group).to(tl.int64) * stride_qh
    q_base = q_ptr + item * stride_qb + kv_head * group * stride_qh
    keep = (rows < total)[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(q_base + (q_rows[:, None] + dims[None, :].to(tl.int64) * stride_qd), mask=keep, other=0.0)
    q = signed(widened(q), SIGN)
    k_base = k_ptr + item * stride_kb + kv_head * stride_kh
    v_base = v_ptr + item * stride_vb + kv_head * stride_vh
    m = tl.full([BLOCK_M], LOWEST, tl.float32)
    l_sum = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for start in range(begin + split * share, tl.minimum(begin + (split + 1) * share, end), BLOCK_N):
        acc, m, l_sum = attend(
            acc, m, l_sum, q, k_base, v_base, stride_kt, stride_kd, stride_vt, stride_vd, start, first, stop, seqlen_k,
            exponent_scale, HEAD_DIM, HEAD_DIM_V, BLOCK_D, BLOCK_DV, BLOCK_N, True, True,
        )  # fmt: skip

    groups = (batch_size * num_heads_kv).to(tl.int64)
    line = (split * groups + item * num_heads_kv + kv_head) * total
    tl.store(sums_ptr + line + rows, m, mask=rows < total)
    tl.store(sums_ptr + num_splits * groups * total + line + rows, l_sum, mask=rows < total)
    store_tile(acc_ptr + line * HEAD_DIM_V, acc, rows, dims_v, HEAD_DIM_V, 1, total, HEAD_DIM_V, BLOCK_DV)


@kernel
def attention_forward_join(
    acc_ptr,
    sums_ptr,
    out_ptr,
    lse_ptr,
    stats_ptr,
    stride_ob,
    stride_oh,
    stride_ot,
    stride_od,
    scale,
    exponent_scale,
    batch_size,
    num_heads_kv,
    group,
    seqlen_q,
    num_splits,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """One row: the sums that :func:`attention_forward_split` left, brought to their common maximum and added.

    ``BLOCK_SPLITS`` is a power of two, at least ``num_splits``.
    """
    program = tl.program_id(0)
    total = seqlen_q * group
    row, group_index = program % total, (program // total).to(tl.int64)
    item, kv_head = group_index // num_heads_kv, group_index % num_heads_kv
    query, head = row // group, kv_head * group + row % group

    groups = (batch_size * num_heads_kv).to(tl.int64)
    splits, dims = tl.arange(0, BLOCK_SPLITS), tl.arange(0, BLOCK_DV)
    keep = splits < num_splits
    lines = (splits * groups + group_index) * total + row
    m = tl.load(sums_ptr + lines, mask=keep, other=LOWEST)
    l_sum = tl.load(sums_ptr + num_splits * groups * total + lines, mask=keep, other=0.0)
    both = keep[:, None] & (dims < HEAD_DIM_V)[None, :]
    acc = tl.load(acc_ptr + (lines[:, None] * HEAD_DIM_V + dims[None, :]), mask=both, other=0.0)

    m_all = tl.reduce(m, 0, tl.standard._elementwise_max)
    weight = tl.exp2((m - m_all) * exponent_scale)
    l_all = tl.reduce(l_sum * weight, 0, tl.standard._sum_combine)
    out = tl.reduce(acc * weight[:, None], 0, tl.standard._sum_combine) / tl.where(l_all > 0, l_all, 1.0)
    lse, largest, log_sum = finish(m_all, l_all, scale)
    line = (item * num_heads_kv * group + head) * seqlen_q + query
    tl.store(lse_ptr + line, lse)
    if stats_ptr is not None:
        tl.store(stats_ptr + line, largest)
        tl.store(stats_ptr + groups * group * seqlen_q + line, log_sum)
    out_base = out_ptr + item * stride_ob + head * stride_oh + tl.cast(query, tl.int64) * stride_ot
    tl.store(out_base + dims.to(tl.int64) * stride_od, round_to(out, out_ptr.dtype.element_ty), mask=dims < HEAD_DIM_V)
