"""Claim 3 comes out CONFIRMED, REFUTED and INCONCLUSIVE where it should."""

from dataclasses import replace
from math import log
from random import Random

import pytest

from bench.claims import Hearing, Scope
from bench.claims._mask_ratios import ALL_PERMITTED, NO_MASK, Ratio, limit, pair_share, plan
from bench.claims.mask_arithmetic import CAUSAL, LEAST_BESIDE_NAIVE, WINDOW, MaskArithmetic
from bench.evidence import Evidence
from bench.figure_style import figure_style
from bench.implementation import implementations
from bench.inputs import make_inputs
from bench.masks import attended_pairs
from bench.plots import Reading, save
from bench.problem import Problem
from tests.bench.planted import ladder, record, run

FULL, QUICK = Scope(), Scope(quick=True)
LENGTHS = (1024, 1456, 2048, 2896, 4096)
WINDOWED = {"mask": f"sliding_window({WINDOW})", "num_heads": 1}
LADDER = (256, 368, 512, 720, 1024, 1456, 2048, 2896, 4096)
LONG_LADDER = tuple(1024 * n for n in (1, 2, 3, 4, 6, 8, 11, 16))


def truth(implementation, without, seqlen):
    """Ratios as the implementations have them: blocks along the diagonal are computed whole."""
    if without == ALL_PERMITTED:
        return 1.0
    return {"naive": 1.12, "sdpa_flash": 0.5 + 256 / seqlen, "online_softmax": 0.5 + 1000 / seqlen}[implementation]


def paired(law=truth, noise=0.01, processes=6, scope=FULL, **env):
    """Evidence of all pairs of a scope, ratios scattered around ``law(implementation, without, seqlen)``."""
    evidence = []
    for without, pair in plan(scope):
        draw = Random(pair.name)
        centre = law(pair.b.implementation, without, pair.b.problem.seqlen_q)
        rows = tuple(
            {"log_ratio": log(centre * (1 + draw.uniform(-noise, noise))), "a_ms": 1.0, "rounds": 20}
            for _ in range(processes)
        )
        evidence.append(Evidence(kind="pair", name=pair.name, rows=rows, seconds=1.0))
    return replace(run([], **env), evidence=tuple(evidence))


def cells(kernel_ratio, name="sdpa_flash", drift=2.0, noise=0.02, lengths=LENGTHS, **fields):
    """Cells of naive and of a kernel; everything under the causal mask was ``drift`` times slower for a while."""
    records = []
    for length in lengths:
        ms = 1e-5 * length**2
        for mask, own, naive in (("full", 0.5, 1.0), ("causal", 0.5 * kernel_ratio(length), 1.1)):
            slow = drift if mask == "causal" else 1.0
            times = {name: ms * own * slow, "naive": ms * naive * slow}
            records += [record(n, length, t, mask=mask, noise=noise, **fields) for n, t in times.items()]
    return run(records)


def windowed(implementation, law, lengths, noise=0.02, **fields):
    return run(ladder(law, implementation, lengths, noise=noise, processes=5, **(WINDOWED | fields)))


def judged(*runs):
    return MaskArithmetic().judge(Hearing(Reading(list(runs))))


def verdicts(*runs):
    """By implementation and what its causal times are over."""
    return {tuple(answer.subject.split(" (")[0].split(", ", 1)): answer.verdict for answer in judged(*runs)}


def only(*runs):
    (answer,) = judged(*runs)
    return answer


class TestWhatIsCompared:
    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_arms_differ_in_the_mask_alone(self, device):
        for _, pair in plan(Scope(device)):
            assert pair.b.problem.mask.spec == "causal"
            assert pair.a.problem.model_copy(update={"mask": pair.b.problem.mask}) == pair.b.problem
            assert pair.a.implementation == pair.b.implementation

    def test_the_all_permitted_mask_hides_one_key_and_naive_stores_as_many_bytes_for_it_as_for_causal(self):
        _, pair = next(one for one in plan(QUICK) if one[0] == ALL_PERMITTED)
        seqlen = pair.a.problem.seqlen_q
        assert pair.a.problem.all_pairs - attended_pairs(pair.a.problem.mask, pair.a.problem.mask_shape) == seqlen - 1
        naive, inputs = implementations.get("naive"), make_inputs(pair.a.problem)
        stored = [naive.prepare(arm.problem, inputs).mask_bytes for arm in (pair.a, pair.b)]
        assert stored == [4 * seqlen**2] * 2
        assert naive.prepare(Problem(seqlen=seqlen, num_heads=1), inputs).mask_bytes == 0

    def test_online_softmax_computes_the_blocks_that_its_entry_says(self):
        online, block = implementations.get("online_softmax"), CAUSAL["online_softmax"].block
        for seqlen in (block, 4 * block):
            causal = Problem(seqlen=seqlen, num_heads=1, mask="causal")
            assert computed(online, causal) / seqlen**2 == (seqlen + block) / (2 * seqlen)

    def test_online_softmax_computes_windows_linearly_and_sdpa_is_given_a_matrix(self):
        online, flash = implementations.get("online_softmax"), implementations.get("sdpa_flash")
        short, long = (Problem(seqlen=seqlen, **WINDOWED) for seqlen in (4096, 8192))
        assert computed(online, long) / computed(online, short) == pytest.approx(2, abs=0.1)
        small = Problem(seqlen=512, **WINDOWED)
        assert flash.prepare(small, make_inputs(small)).mask_bytes == 512**2

    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_under_a_window_those_that_store_it_take_turns_in_the_same_company_from_a_block_on(self, device):
        cases = MaskArithmetic().needs(Scope(device)).cases
        lengths = {}
        for case in cases:
            lengths.setdefault(case.implementation, set()).add(case.problem.seqlen_q)
        online, naive = lengths.pop("online_softmax"), lengths["naive"]
        assert lengths.pop("triton_flash", online) == online
        assert all(one == naive for one in lengths.values())
        assert len(naive) >= 8 <= len(online)
        assert max(naive) >= 16 * min(naive)
        if device == "cpu":
            within = {length for length in naive | online if CAUSAL["online_softmax"].block <= length <= max(naive)}
            assert within <= naive & online

    def test_quick_asks_for_less_under_the_same_names(self):
        claim = MaskArithmetic()
        whole, part = claim.needs(FULL), claim.needs(QUICK)
        assert {pair.name for pair in part.pairs} < {pair.name for pair in whole.pairs}
        assert not part.cases
        assert {case.implementation for case in whole.cases} == {"naive", "sdpa_flash", "online_softmax"}
        online = sorted(case.problem.seqlen_q for case in whole.cases if case.implementation == "online_softmax")
        assert online[0] >= 4 * WINDOW
        assert online[-1] >= 16 * online[0]
        assert len(online) >= 8


def computed(online, problem):
    """Scores that online_softmax computes, hidden ones in partly visible blocks included."""
    blocks = online._plan(problem, "cpu").blocks
    return sum(
        (block.rows.stop - block.rows.start) * (tile.keys.stop - tile.keys.start)
        for block in blocks
        for tile in block.tiles
    )


class TestTheLimit:
    def test_blocks_along_the_diagonal_leave_the_share_of_pairs(self):
        found = limit([Ratio(t, 0.5 + 300 / t, 0.5 + 300 / t, 0.5 + 300 / t, 6) for t in (1024, 2048, 4096)])
        assert (found.value, found.lo, found.hi, found.slope) == pytest.approx((0.5, 0.5, 0.5, 300))
        assert found.at(3000) == pytest.approx(0.6)

    def test_its_interval_covers_what_noise_does_to_it(self):
        draw, half = Random(3), 0.02
        values = []
        for _ in range(2000):
            shifted = [(t, 0.5 + 300 / t + draw.gauss(0, half / 1.96)) for t in (1024, 2048, 4096)]
            found = limit([Ratio(t, r, r - half, r + half, 6) for t, r in shifted])
            values.append(found.lo <= 0.5 <= found.hi)
        assert 0.93 < sum(values) / len(values) < 0.97

    def test_the_share_of_pairs_is_that_of_the_mask(self):
        problem = Problem(seqlen=37, num_heads=1, mask="causal")
        assert pair_share(37) == pytest.approx(problem.attended_pairs / problem.all_pairs)


class TestPairs:
    def test_what_is_true_is_confirmed_with_its_numbers(self):
        answers = judged(paired())
        assert {answer.verdict for answer in answers} == {"CONFIRMED"}
        assert len(answers) == 4
        told = {answer.subject: answer.found for answer in answers}
        assert "the mask costs +12% at T=2048" in told[f"naive, causal over {NO_MASK} (float32, H=1, d=64)"]
        flash = told[f"sdpa_flash, causal over {NO_MASK} (float32, H=2, d=64)"]
        assert "at T=2048 (pairs 0.50)" in flash
        assert "limit 0." in flash

    def test_quick_pairs_are_enough_for_naive_and_flash(self):
        found = verdicts(paired(scope=QUICK))
        assert found == {
            ("naive", f"causal over {ALL_PERMITTED}"): "CONFIRMED",
            ("sdpa_flash", f"causal over {NO_MASK}"): "CONFIRMED",
        }

    @pytest.mark.parametrize(
        ("implementation", "without", "false"),
        [
            ("naive", ALL_PERMITTED, lambda t: 0.9),
            ("naive", ALL_PERMITTED, lambda t: 1.1),
            ("naive", NO_MASK, lambda t: 0.55),
            ("sdpa_flash", NO_MASK, lambda t: 1.05),
            ("sdpa_flash", NO_MASK, lambda t: 0.75 + 100 / t),
            ("sdpa_flash", NO_MASK, lambda t: 0.3 + 200 / t),
            ("online_softmax", NO_MASK, lambda t: 1.0 - 100 / t),
        ],
    )
    def test_what_is_false_is_refuted(self, implementation, without, false):
        def law(name, other, seqlen):
            return false(seqlen) if (name, other) == (implementation, without) else truth(name, other, seqlen)

        found = verdicts(paired(law))
        assert found.pop((implementation, f"causal over {without}")) == "REFUTED"
        assert set(found.values()) == {"CONFIRMED"}

    def test_noise_and_few_processes_decide_nothing(self):
        assert set(verdicts(paired(noise=0.3)).values()) == {"INCONCLUSIVE"}
        few = judged(paired(processes=5))
        assert {answer.verdict for answer in few} == {"INCONCLUSIVE"}
        assert {answer.reason for answer in few} == {"needs 6 processes, got 5"}

    def test_an_interval_that_touches_the_edge_is_not_enough(self):
        def law(name, other, seqlen):
            return 1.05 if other == ALL_PERMITTED else truth(name, other, seqlen)

        assert verdicts(paired(law))["naive", f"causal over {ALL_PERMITTED}"] == "INCONCLUSIVE"

    def test_lengths_that_are_missing_leave_the_limit_open(self):
        whole = paired()
        kept = tuple(one for one in whole.evidence if "T512" not in one.name and "T4096" not in one.name)
        found = {answer.subject.split(",")[0]: answer for answer in judged(replace(whole, evidence=kept))}
        for name in ("sdpa_flash", "online_softmax"):
            assert found[name].verdict == "INCONCLUSIVE"
            assert "computed whole" in found[name].reason

    def test_threads_that_share_heads_unevenly_explain_a_high_limit(self):
        def law(name, other, seqlen):
            return 0.8 + 100 / seqlen if name == "sdpa_flash" else truth(name, other, seqlen)

        found = {a.subject.split(",")[0]: a for a in judged(paired(law, torch_threads=8))}
        assert found["sdpa_flash"].verdict == "INCONCLUSIVE"
        assert "8 threads share 2 heads unevenly" in found["sdpa_flash"].reason
        assert found["online_softmax"].verdict == "CONFIRMED"


class TestCells:
    def test_a_machine_that_was_slow_for_one_mask_changes_nothing(self):
        for drift in (0.3, 1.0, 2.0):
            answer = only(cells(lambda t: 0.5 + 256 / t, drift=drift))
            assert answer.verdict == "CONFIRMED"
            assert "relative to naive" in answer.subject
            assert len(answer.rows) == 2 * len(LENGTHS)

    def test_a_kernel_that_skips_nothing_or_too_little_is_refuted(self):
        assert only(cells(lambda t: 1.1)).verdict == "REFUTED"
        assert only(cells(lambda t: 0.8)).verdict == "REFUTED"

    def test_one_that_seems_to_skip_too_much_is_doubted_since_the_cost_of_naives_mask_is_not_known(self):
        answer = only(cells(lambda t: 0.3))
        assert answer.verdict == "INCONCLUSIVE"
        assert f"{LEAST_BESIDE_NAIVE:.2f}" in answer.reason

    def test_noise_is_inconclusive(self):
        assert only(cells(lambda t: 0.5 + 256 / t, noise=0.6)).verdict == "INCONCLUSIVE"

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("sdpa_flash", {"lengths": (512, 720, 1024)}),
            ("online_softmax", {"lengths": (1024, 1456, 2048)}),
            ("sdpa_flash", {"lengths": (2048, 4096)}),
            ("sdpa_flash", {"scale": -1.0}),
            ("sdpa_flash", {"direction": "bwd"}),
            ("sdpa_math", {}),
        ],
    )
    def test_rows_that_cannot_tell_are_not_judged(self, name, options):
        assert judged(cells(lambda t: 1.1, name, **options)) == []

    def test_without_naive_in_the_same_rounds_there_is_nothing_to_compare(self):
        whole = cells(lambda t: 0.5)
        assert judged(run([r for r in whole.records if r.implementation != "naive"])) == []


class TestWindows:
    @pytest.mark.parametrize(
        ("implementation", "law", "lengths", "verdict"),
        [
            ("naive", lambda t: 0.05 + 2e-6 * t**2, LADDER, "CONFIRMED"),
            ("naive", lambda t: 0.05 + 5e-3 * t, LADDER, "REFUTED"),
            ("sdpa_flash", lambda t: 0.02 + 1e-6 * t**2, LADDER, "CONFIRMED"),
            ("online_softmax", lambda t: 0.2 + 5e-3 * t, LONG_LADDER, "CONFIRMED"),
            ("online_softmax", lambda t: 0.2 + 1e-6 * t**2, LONG_LADDER, "REFUTED"),
        ],
    )
    def test_growth_is_held_against_what_the_implementation_does(self, implementation, law, lengths, verdict):
        answer = only(windowed(implementation, law, lengths))
        assert answer.verdict == verdict
        assert answer.subject == f"{implementation}, sliding_window(256), float32, H=1, d=64"
        assert answer.found.startswith("T^")
        assert len(answer.rows) == len(lengths)

    def test_noise_is_inconclusive(self):
        assert only(windowed("online_softmax", lambda t: 5e-3 * t, LONG_LADDER, noise=0.9)).verdict == "INCONCLUSIVE"

    def test_lengths_near_the_window_do_not_count_for_kernels_that_skip(self):
        quadratic_at_first = windowed(
            "online_softmax", lambda t: 5e-3 * t * min(t, 1024) / 1024, (128, 256, 512, *LONG_LADDER)
        )
        assert only(quadratic_at_first).verdict == "CONFIRMED"
        assert judged(windowed("online_softmax", lambda t: 5e-3 * t, LADDER)) == []

    def test_few_lengths_other_directions_and_other_masks_are_not_judged(self):
        assert judged(windowed("naive", lambda t: 1e-6 * t**2, LADDER[:7])) == []
        assert judged(windowed("naive", lambda t: 1e-6 * t**2, LADDER, direction="bwd")) == []
        assert judged(windowed("naive", lambda t: 1e-6 * t**2, LADDER, mask="sliding_window(256) & padding(0.5)")) == []


def test_figures_say_what_was_found(tmp_path):
    records = [
        *windowed("naive", lambda t: 0.05 + 2e-6 * t**2, LADDER).records,
        *windowed("sdpa_flash", lambda t: 0.02 + 1.5e-6 * t**2, LADDER).records,
        *windowed("online_softmax", lambda t: 0.2 + 5e-3 * t, LONG_LADDER).records,
        *cells(lambda t: 0.5 + 256 / t).records,
        *cells(lambda t: 0.52 + 200 / t, head_dim=128).records,
    ]
    whole = replace(paired(), records=records)
    hearing = Hearing(Reading([whole]))
    claim = MaskArithmetic()
    with figure_style():
        pairs, beside, window = claim.draw(hearing, claim.judge(hearing))
    titles = [" ".join(one.figure.get_suptitle().split()) for one in (pairs, beside, window)]
    assert "sdpa_flash tends to 0.50 [0.4" in titles[0]
    assert "naive takes 1.00 times as long as under an all-permitted mask" in titles[0]
    assert "sdpa_flash (float32, H=4, d=128) tends to 0.4" in titles[1]
    assert "online_softmax, causal over no mask (float32, H=1, d=64) 0.7" in pairs.caption
    assert "naive as T^2.0" in titles[2]
    assert "online_softmax as T^1.0" in titles[2]
    assert "REFUTED" not in window.caption
    assert [len(one.figure.axes) for one in (pairs, beside, window)] == [2, 2, 2]
    stems = [save(one, tmp_path).stem for one in (pairs, beside, window)]
    assert len(set(stems)) == 3
