"""The checkpoint questions as tests, and what a blocked key that is not finite does to each implementation.

Does a key-padding mask leave the losses of padded queries out? No. Can subtracting the maximum normalise a
blocked row? No. Does not storing the scores remove the quadratic work? No.
"""

from __future__ import annotations

import math

import pytest
import torch
from golden import CASES, given, problem
from members import DTYPES, EVERY, QUICK, attend, attend_padded, problem_of

from bench.implementation import AttentionInputs, dense_mask, implementations
from bench.inputs import make_inputs
from bench.numerics import UNIT_ROUNDOFF
from bench.problem import Problem
from bench.reference import reference

# Padding hides keys, not queries


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("member", QUICK)
def test_a_padded_query_still_has_an_output_and_a_loss(member, dtype):
    """13/24 with the padded query's row, 11/18 without: leaving it out is the loss's business."""
    answers = CASES["padded_query_loss"]["expected"]
    tensors = given("padded_query_loss")
    out = attend_padded(member, problem("padded_query_loss", *tensors, dtype), *tensors)["out"][0, 0].double()
    loss = out.square().sum(dim=-1)
    limit = 2 * 2 * UNIT_ROUNDOFF[dtype]  # a weight rounded twice, squared
    assert loss[3] > 0
    assert float(loss.mean()) == pytest.approx(answers["loss_all_rows"], abs=limit)
    assert float(loss[:3].mean()) == pytest.approx(answers["loss_valid_rows"], abs=limit)


@pytest.mark.parametrize("member", QUICK)
def test_a_padded_query_changes_gradients_unless_its_own_gradient_is_zero(member):
    """With ``dout = 0`` in the padded rows, the gradients are those of the sequence without them."""
    asked = Problem(num_heads=2, seqlen=6, head_dim=4, mask="causal & padding(lengths=[4])", direction="fwd_bwd")
    inputs = make_inputs(asked)
    tensors = (inputs.q, inputs.k, inputs.v)
    silent = inputs.dout.clone()
    silent[:, :, 4:] = 0.0
    short = Problem(num_heads=2, seqlen=4, head_dim=4, mask="causal", direction="fwd_bwd")
    wanted = attend(member, short, *(tensor[:, :, :4] for tensor in (*tensors, inputs.dout)))
    with_loss, without = (attend(member, asked, *tensors, dout) for dout in (inputs.dout, silent))
    for name in ("dq", "dk", "dv"):
        torch.testing.assert_close(without[name][:, :, :4], wanted[name], rtol=0, atol=1e-6)
        assert not without[name][:, :, 4:].any()
    for name in ("dk", "dv"):
        assert (with_loss[name] - without[name]).abs().max() > 1e-3


# Not storing scores is not the same as not computing them


def visited(asked, block_m=16, block_n=8):
    """How often each (query, key) pair of one head is computed and let through; and how many are computed."""
    counts, computed = torch.zeros(asked.seqlen_q, asked.seqlen_k, dtype=torch.int64), 0
    member = type(implementations.get("online_softmax"))(block_m, block_n)
    for block, tile, _ in member.running_states(asked, make_inputs(asked)):
        view = counts[block.rows, tile.keys]
        view += 1 if tile.hidden is None else (~tile.hidden).view(view.shape)
        computed += view.numel()
    return counts, computed


@pytest.mark.parametrize("mask", ["full", "causal", "sliding_window(20)", "causal & padding(lengths=[70])"])
def test_attention_in_blocks_evaluates_every_permitted_pair_exactly_once(mask):
    asked = Problem(num_heads=1, seqlen=100, head_dim=4, mask=mask)
    counts, computed = visited(asked)
    assert torch.equal(counts, dense_mask(asked, "cpu")[0, 0].long())
    assert asked.attended_pairs == int(counts.sum()) <= computed <= asked.all_pairs


def test_twice_the_length_is_four_times_the_pairs_in_linear_memory():
    short, long = (Problem(num_heads=1, seqlen=seqlen, head_dim=4) for seqlen in (1000, 2000))
    assert [visited(asked, 200, 100)[1] for asked in (short, long)] == [1_000_000, 4_000_000]

    def growth(name):
        member = implementations.get(name)
        return member.predicted_peak_bytes(long) / member.predicted_peak_bytes(short)

    assert growth("online_softmax") < 2
    assert 3.9 < growth("naive") < 4


def test_a_causal_mask_lets_blocks_skip_work_that_a_stored_mask_does_not():
    """Blocks of 16 x 8: no block wholly in the future is computed, those on the diagonal are computed whole."""
    asked = Problem(num_heads=1, seqlen=128, head_dim=4, mask="causal")
    _, computed = visited(asked)
    assert asked.attended_pairs < computed < 0.6 * asked.all_pairs
    naive = implementations.get("naive")
    assert naive.predicted_peak_bytes(asked) == naive.predicted_peak_bytes(Problem(num_heads=1, seqlen=128, head_dim=4))


# One position's input changes: the controlled comparison


SEQLEN, WIDTH, CHANGED = 12, 8, 5


def projected(x, weights):
    """q, k and v of one head from the representation ``x (seqlen, width)``; the projections are fixed."""
    return [(x @ weight)[None, None] for weight in weights]


def layers(member, x, weights, mask, count):
    """Output of ``count`` attention layers with the same projections, each reading the output of the one before."""
    for _ in range(count):
        q, k, v = projected(x, weights)
        x = attend(member, problem_of(q, k, v, mask=mask), q, k, v)["out"][0, 0]
    return x


@pytest.fixture(scope="module")
def comparison():
    """Two representations that differ in one position, and fixed projections."""
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(SEQLEN, WIDTH, generator=generator)
    weights = [torch.randn(WIDTH, WIDTH, generator=generator) / math.sqrt(WIDTH) for _ in range(3)]
    after = before.clone()
    after[CHANGED] = torch.randn(WIDTH, generator=generator)
    return before, after, weights


def test_one_changed_position_changes_one_row_and_one_column_of_the_scores(comparison):
    before, after, weights = comparison
    one, other = ((q @ k.transpose(-1, -2))[0, 0] for q, k, _ in (projected(x, weights) for x in (before, after)))
    changed = one != other
    expected = torch.zeros(SEQLEN, SEQLEN, dtype=torch.bool)
    expected[CHANGED], expected[:, CHANGED] = True, True
    assert torch.equal(changed, expected)


@pytest.mark.parametrize("mask", ["full", "causal", "sliding_window(2)", "padding(lengths=[5])", "document(3)"])
@pytest.mark.parametrize("member", QUICK)
def test_one_layer_changes_only_the_rows_that_see_the_changed_position(member, mask, comparison):
    """Its own row too, since its query changed; every other row keeps every bit."""
    before, after, weights = comparison
    changed = (layers(member, before, weights, mask, 1) != layers(member, after, weights, mask, 1)).any(dim=-1)
    may = dense_mask(Problem(num_heads=1, seqlen=SEQLEN, head_dim=WIDTH, mask=mask), "cpu")[0, 0, :, CHANGED].clone()
    may[CHANGED] = True
    assert torch.equal(changed, may)


@pytest.mark.parametrize(
    ("mask", "after_one", "after_two"),
    [
        ("sliding_window(2)", [5, 6], [5, 6, 7]),
        ("causal & sliding_window(3)", [5, 6, 7], [5, 6, 7, 8, 9]),
        ("padding(lengths=[5])", [5], [5]),  # nobody reads the changed position, so its row is a dead end
        ("document(3)", [4, 5, 6, 7], [4, 5, 6, 7]),  # documents stay apart at any depth
        ("full", [*range(SEQLEN)], [*range(SEQLEN)]),
    ],
)
@pytest.mark.parametrize("member", QUICK)
def test_a_second_layer_spreads_the_change_to_readers_of_readers(member, mask, after_one, after_two, comparison):
    before, after, weights = comparison
    for count, rows in ((1, after_one), (2, after_two)):
        one, other = (layers(member, x, weights, mask, count) for x in (before, after))
        assert (one != other).any(dim=-1).nonzero().flatten().tolist() == rows


# A blocked key that is not finite


KEY, VALUE = "key", "value"
SOME, ALL = "blocked for some queries", "blocked for every query"
LEAKS = {
    "naive": {(KEY, SOME), (KEY, ALL), (VALUE, SOME), (VALUE, ALL)},
    "naive_compiled": {(KEY, SOME), (KEY, ALL), (VALUE, SOME), (VALUE, ALL)},
    "sdpa_math": {(KEY, SOME), (KEY, ALL), (VALUE, SOME), (VALUE, ALL)},
    "sdpa_flash": {(KEY, ALL), (VALUE, SOME), (VALUE, ALL)},  # is_causal overwrites scores, a mask is added to them
    "flex": {(VALUE, SOME), (VALUE, ALL)},
    "online_softmax": {(VALUE, SOME)},  # scores are overwritten, and key blocks that nobody sees are skipped
    "float64 reference": {(VALUE, SOME)},
}
"""What leaks today: a NaN in this tensor at a blocked position makes rows NaN that may not see it.

A weight of exactly 0 times NaN is NaN, so every implementation that multiplies a blocked value leaks it; one
that adds ``-inf`` to a score leaks NaN of a key as well. The suite's inputs are finite, and the rule is the
strict one: what is not finite anywhere may make any row not finite. A change of this table is news; what is
not in it yet is no news.
"""
MASKS = {SOME: "causal", ALL: "padding(lengths=[3])"}


def leaks(compute, tensor, mask, bad):
    """Whether rows that may not see the last of four keys change when that key or value becomes ``bad``."""
    q, k, v = torch.randn(3, 1, 1, 4, 4, generator=torch.Generator().manual_seed(0)).unbind()
    asked = problem_of(q, k, v, mask=mask)
    spoiled_k, spoiled_v = k.clone(), v.clone()
    (spoiled_k if tensor == KEY else spoiled_v)[:, :, 3] = bad
    blocked = ~dense_mask(asked, "cpu")[0, 0, :, 3]
    clean, spoiled = compute(asked, q, k, v), compute(asked, q, spoiled_k, spoiled_v)
    return bool((clean != spoiled).any(dim=-1)[0, 0][blocked].any())


def compute_of(member):
    if member == "float64 reference":
        return lambda asked, *tensors: reference(asked, AttentionInputs(*tensors)).out
    return lambda asked, *tensors: attend(member, asked, *tensors)["out"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("member", [*EVERY, "float64 reference"])
def test_o12_who_leaks_a_blocked_key_that_is_not_finite(member, bad):
    found = {
        (tensor, where)
        for tensor in (KEY, VALUE)
        for where, mask in MASKS.items()
        if leaks(compute_of(member), tensor, mask, bad)
    }
    assert found == LEAKS.get(member, found)


@pytest.mark.parametrize("where", [SOME, ALL])
@pytest.mark.parametrize("tensor", [KEY, VALUE])
@pytest.mark.parametrize("member", [*QUICK, "float64 reference"])
def test_o12_a_blocked_key_that_is_only_large_changes_not_one_bit(member, tensor, where):
    assert not leaks(compute_of(member), tensor, MASKS[where], 1e10)
