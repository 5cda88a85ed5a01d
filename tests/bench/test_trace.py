"""The trace: worked numbers, the float64 reference, what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cli import main
from bench.errors import OutputError, TraceError, UnknownNameError
from bench.inputs import make_inputs
from bench.problem import Problem
from bench.reference import reference
from bench.trace import LARGEST_MATRIX, save, trace_example, trace_problem
from bench.worked_examples import EXAMPLES

GOLDEN = Path(__file__).parents[1] / "chapter" / "golden.json"
CASES = {case["name"]: case for case in json.loads(GOLDEN.read_text("utf-8"))["cases"]}
ROWS = [(name, name) for name in EXAMPLES] + [("unscaled_demonstration", "unscaled_demonstration_if_scaled")]
"""Worked example and the case that it realises; the second changes the scale."""
COMPARED = ("raw_scores", "scores", "weights", "out", "lse")
DIGITS = 1e-12


def numbers(values):
    """Nested lists as float64, where infinities are strings."""
    return np.array(values, dtype=object).astype(np.float64)


def one_head(name, case):
    scale = CASES[case]["inputs"].get("scale")
    changes = {} if scale == EXAMPLES[name].scale else {"scale": scale}
    return trace_example(name, **changes).head(0, 0)


@pytest.mark.parametrize(("name", "case"), ROWS)
def test_worked_examples_have_the_worked_numbers(name, case):
    inputs, expected = CASES[case]["inputs"], CASES[case]["expected"]
    head = one_head(name, case)
    for tensor in "qkv":
        assert np.array_equal(head[tensor], numbers(inputs[tensor])), tensor
    assert EXAMPLES[name].mask == inputs["mask"]
    found = [key for key in COMPARED if key in expected]
    assert found or "loss_per_row" in expected
    for key in found:
        np.testing.assert_allclose(head[key], numbers(expected[key]), rtol=0, atol=DIGITS)


def test_masked_scores_and_running_sums_are_the_worked_ones():
    head = trace_example("causal_three_tokens").head(0, 0)
    hidden = np.where(head["mask"], head["scores"], -np.inf)
    assert np.array_equal(hidden, numbers(CASES["causal_three_tokens"]["expected"]["masked_scores"]))
    sums = trace_example("sharper_row").head(0, 0)
    final = {
        key: values[-1] for key, values in CASES["running_recurrence_low_first"]["expected"].items() if key in "mlu"
    }
    assert set(final) == {"m", "l", "u"}
    for key, value in final.items():
        np.testing.assert_allclose(sums[key][0], value, rtol=0, atol=DIGITS)


def test_no_worked_example_with_numbers_is_left_out():
    """What has q, k and v but no trace of its own is another one again: without scale, or with a wrong polarity."""
    with_inputs = {name for name, case in CASES.items() if "q" in case["inputs"]}
    same = {"unscaled_demonstration_if_scaled", "no_renormalisation_after_exclusion", "polarity_three_apis"}
    assert with_inputs - same == set(EXAMPLES)
    assert all(len(e.query_tokens) == len(e.q) and len(e.key_tokens) == len(e.k) == len(e.v) for e in EXAMPLES.values())


PROBLEMS = {
    "grouped heads": dict(seqlen=5, num_heads_q=4, num_heads_kv=2, batch_size=2, mask="causal"),
    "empty rows": dict(seqlen_q=6, seqlen_k=4, num_heads=2, mask="causal"),
    "no key at all": dict(seqlen=3, num_heads=1, batch_size=2, mask="padding(lengths=[0, 2])"),
    "negative scale, bfloat16": dict(seqlen=7, num_heads=1, scale=-0.7, dtype="bfloat16"),
    "peaked, other width of v": dict(seqlen_q=3, seqlen_k=9, num_heads=1, head_dim_v=5, distribution="peaked"),
    "window and padding": dict(seqlen=8, num_heads=1, mask="sliding_window(3) & padding(0.5)"),
}


@pytest.mark.parametrize("label", PROBLEMS)
def test_the_trace_agrees_with_the_float64_reference(label):
    problem = Problem(**({"head_dim": 8} | PROBLEMS[label]))
    exact, trace = reference(problem, make_inputs(problem)), trace_problem(problem)
    for name in ("out", "lse"):
        wanted = getattr(exact, name).numpy()
        assert trace.tensors[name].shape == wanted.shape
        np.testing.assert_allclose(trace.tensors[name], wanted, rtol=0, atol=1e-12)
    empty = ~trace.tensors["mask"].any(axis=-1)
    assert empty.sum() == problem.empty_rows
    assert trace.tensors["mask"].sum() == problem.attended_pairs
    assert not trace.tensors["out"][empty].any() and not trace.tensors["l"][empty].any()
    assert (trace.tensors["m"][empty] == -np.inf).all() and (trace.tensors["lse"][empty] == -np.inf).all()


@given(
    queries=st.integers(1, 9),
    keys=st.integers(1, 9),
    mask=st.sampled_from(["full", "causal", "causal_top_left", "padding(0.6)", "causal & padding(0.3)"]),
    scale=st.sampled_from([None, 0.0, 30.0, -2.0]),
    seed=st.integers(0, 99),
)
def test_parts_fit_together(queries, keys, mask, scale, seed):
    trace = trace_problem(
        Problem(seqlen_q=queries, seqlen_k=keys, num_heads=2, head_dim=3, mask=mask, scale=scale, seed=seed)
    )
    t = trace.tensors
    assert all(np.isfinite(t[name]).all() for name in t if name not in ("m", "lse"))
    np.testing.assert_allclose(t["contributions"].sum(axis=-2), t["out"], atol=1e-12)
    np.testing.assert_allclose(t["out"] * t["l"][..., None], t["u"], atol=1e-9)
    np.testing.assert_allclose(t["weights"].sum(axis=-1), t["mask"].any(axis=-1).astype(float), atol=1e-12)
    assert not t["weights"][~t["mask"]].any()
    assert ((t["l"] >= 1) == t["mask"].any(axis=-1)).all(), "the largest term is exp(0)"


def test_a_head_reads_the_keys_of_its_group():
    trace = trace_problem(Problem(seqlen=3, num_heads_q=4, num_heads_kv=2, head_dim=2))
    assert np.array_equal(trace.head(0, 1)["k"], trace.tensors["k"][0, 0])
    assert np.array_equal(trace.head(0, 2)["k"], trace.tensors["k"][0, 1])
    head = trace.head(0, 3)
    np.testing.assert_allclose(head["q"] @ head["k"].T, head["raw_scores"])


# What is written


def test_both_files_hold_every_array(tmp_path):
    trace = trace_problem(Problem(seqlen_q=6, seqlen_k=4, num_heads=1, head_dim=3, mask="causal"))
    binary, readable = save(trace, tmp_path / "new" / "folder")
    with np.load(binary, allow_pickle=False) as stored:
        assert {name: stored[name].tobytes() for name in stored} == {n: a.tobytes() for n, a in trace.tensors.items()}
    text = readable.read_text("utf-8")

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    content = json.loads(text, parse_constant=refuse)
    assert set(content["tensors"]) == set(trace.tensors)
    for name, tensor in trace.tensors.items():
        assert np.array_equal(numbers(content["tensors"][name]), tensor.astype(np.float64)), name
    assert content["tensors"]["m"][0][0][0] == "-inf"
    assert Problem(**content["problem"]) == trace.problem
    assert content["query_tokens"] == [f"q{i}" for i in range(6)]


def test_a_row_of_a_matrix_is_one_line_of_the_json(tmp_path):
    _, readable = save(trace_example("causal_three_tokens"), tmp_path)
    lines = [line.strip().rstrip(",") for line in readable.read_text("utf-8").splitlines()]
    assert "[0.5, 0.5, 0.0]" in lines
    assert "[true, true, false]" in lines


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="trace must be written into a writable folder"):
        save(trace_example("two_key_row"), tmp_path / "file" / "below")


# What is refused


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (dict(seqlen=1 << 20), "seqlen_q and seqlen_k of a trace must be at most 64"),
        (dict(seqlen=33), f"score matrix of a trace must have at most {LARGEST_MATRIX} entries .*, got 1089"),
        (dict(seqlen=16, num_heads=5), "got 1280"),
        (dict(seqlen=2, num_heads=17), "batch_size times num_heads_q of a trace must be at most 16, got 17"),
        (dict(seqlen=2, head_dim=1 << 20), "tensor of a trace must have at most"),
        (dict(seqlen=4, direction="bwd"), "direction of a trace must be fwd, got bwd"),
    ],
)
def test_what_nobody_could_read_is_refused_before_it_is_drawn(fields, says):
    with pytest.raises(TraceError, match=says) as caught:
        trace_problem(Problem(**({"num_heads": 1, "head_dim": 4} | fields)))
    assert caught.value.exit_code == 2


def test_the_largest_trace_is_taken():
    assert trace_problem(Problem(seqlen=32, num_heads=1, head_dim=32)).tensors["contributions"].size == 1 << 15


def test_a_worked_example_takes_another_mask_and_scale_and_nothing_else():
    seen = trace_example("causal_three_tokens", mask="full", scale=0.0).head(0, 0)
    np.testing.assert_allclose(seen["weights"], 1 / 3)
    with pytest.raises(TraceError, match="field of a worked example must be one of mask, scale, got seqlen"):
        trace_example("two_key_row", seqlen=3)
    with pytest.raises(UnknownNameError, match="did you mean two_key_row"):
        trace_example("two_keys")


# The verb


def run(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        main(["trace", *map(str, words)])
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


def test_the_verb_lists_the_files_that_it_wrote(capsys, tmp_path):
    code, out, err = run(capsys, "causal_three_tokens", "-o", tmp_path / "here")
    files = [Path(line) for line in out.splitlines()]
    assert code == 0
    assert sorted(files) == sorted((tmp_path / "here").iterdir())
    assert {path.name for path in files} == {
        "trace.npz", "trace.json", "steps.png", "weights.png", "contributions.png"
    }  # fmt: skip
    assert "3 queries, 3 keys, mask causal, scale 0.5" in err


def test_the_verb_takes_fields_and_draws_each_head(capsys, tmp_path):
    fields = ("--set", "seqlen_q=3", "--set", "seqlen_k=5", "--set", "mask=causal", "--set", "num_heads=2")
    code, out, _ = run(capsys, *fields, "-o", tmp_path)
    assert code == 0
    assert sum("-b0-h1.png" in line for line in out.splitlines()) == 3
    assert json.loads((tmp_path / "trace.json").read_text("utf-8"))["problem"]["seqlen_k"] == 5


def test_without_a_folder_each_problem_has_its_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(capsys, "two_key_row")
    run(capsys, "--set", "seqlen=2", "--set", "mask=causal & padding(0.5)")
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {
        "trace-two_key_row",
        "trace-B1-H1-T2-d4-float32-fwd-causal-padding-0.5",
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["two_key"], "did you mean two_key_row"),
        (["--set", "seqlen=64"], "score matrix of a trace must have at most"),
        (["--set", "seqlen=4,8"], "must be one value"),
        (["--set", "length=4"], "axis must be a known name"),
        (["sharper_row", "--set", "head_dim=4"], "field of a worked example must be"),
        (["--set", "mask=cusal"], "did you mean causal"),
    ],
)
def test_bad_input_writes_nothing(capsys, tmp_path, words, says):
    code, out, err = run(capsys, *words, "-o", tmp_path / "none")
    assert (code, out) == (2, "")
    assert says in err
    assert not (tmp_path / "none").exists()


def test_the_help_names_every_worked_example(capsys):
    _, out, _ = run(capsys, "--help")
    assert set(EXAMPLES) <= set(out.replace(",", " ").replace(".", " ").split())
