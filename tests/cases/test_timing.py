"""Public cases O24 to O28: timing that ends before the work, clocks that read nothing, first calls, accumulated
gradients, and tuning.

What each clock queues and waits for is in ``tests/bench/test_clocks.py``, rounds and warm-up in
``tests/bench/test_timing.py``; here the whole way from an implementation to its record is walked on a stub device.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
import torch
from fake_cuda import MS, FakeCuda
from members import QUICK

from bench.analysis import frame
from bench.calls import differentiable, make_step
from bench.case import Case
from bench.clocks import CudaColdClock, CudaGraphClock, CudaHotClock, PerfCounterClock
from bench.implementation import AttentionOutput, Call, implementations
from bench.inputs import make_inputs
from bench.metrics import metrics
from bench.probes import probe_for
from bench.problem import Problem
from bench.rung import Rung, Setting
from bench.timing import SamplingPlan, interleave

PLAN = SamplingPlan(budget_ns=0, warmup_ns=0)
QUEUED_MS = 20


@dataclass
class Stub:
    """A right attention for full masks, to which subclasses add what is at fault."""

    cuda: FakeCuda
    name = "stub"
    summary = "a stub"
    layout = "bhsd"
    devices = ("cpu",)
    backward = True
    expects: tuple[str, ...] = ()
    seen: set[object] = field(default_factory=set)

    def version(self):
        return "1"

    def unsupported(self, problem, device):
        return None if problem.mask.spec == "full" else "takes the full mask only"

    def predicted_peak_bytes(self, problem, device="cpu"):
        return None

    def prepare(self, problem, inputs):
        return Call(lambda: AttentionOutput(self.work(problem, inputs)))

    def work(self, problem, inputs):
        return attention(problem, inputs)


def attention(problem, inputs):
    scores = inputs.q @ inputs.k.transpose(-1, -2) * problem.softmax_scale
    return scores.softmax(-1) @ inputs.v


@pytest.fixture
def finish(clean_registry):
    """Runs cells of one problem in this process and gives their records by implementation."""
    clean_registry(implementations)

    def run(problem, clock, *members, plan=PLAN, overhead_ns=0):
        for member in members:
            if not isinstance(member, str) and member.name not in implementations.names():
                implementations.add(member.name, member)
        names = [member if isinstance(member, str) else member.name for member in members]
        setting = Setting(
            device="cpu",
            device_name="stub",
            clock=clock,
            probe=None,
            plan=plan,
            process=0,
            ceilings=None,
            rng=random.Random(0),
            overhead_ns=overhead_ns,
            calls=None,
            other_clocks=(),
            gpus=(),
            energy=False,
            announce=lambda _: None,
        )
        cases = [Case(problem, name) for name in names]
        return {record.implementation: record for _, record in Rung(setting, 0, cases).run()}

    return run


def milliseconds(measurement):
    return {ns / measurement.calls_per_sample / MS for ns in measurement.samples_ns}


# O24: the launch returns at once, the work takes 20 ms on a queue.


class Queued(torch.autograd.Function):
    """Queues work of 20 ms in either direction and passes the tensor on."""

    @staticmethod
    def forward(ctx, cuda, tensor):
        ctx.cuda = cuda
        cuda.launch(QUEUED_MS * MS)
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.cuda.launch(QUEUED_MS * MS)
        return None, gradient


class Queueing(Stub):
    name = "queueing"

    def work(self, problem, inputs):
        return Queued.apply(self.cuda, attention(problem, inputs))


class QueueingFailure(Stub):
    """Issues work that fails on the device, once it is timed."""

    name = "queueing_failure"
    at_length = 24
    calls = 0

    def work(self, problem, inputs):
        self.calls += problem.seqlen_q == self.at_length
        self.cuda.launch(QUEUED_MS * MS)
        if self.calls > 3:
            self.cuda.failure = "planted failure of queued work"
        return attention(problem, inputs)


def device_clocks(cuda):
    return {
        "cuda_event_cold": CudaColdClock(cuda, cuda.now, cuda.buffer),
        "cuda_event_hot": CudaHotClock(cuda, cuda.now),
        "cuda_graph": CudaGraphClock(cuda, cuda.now),
    }


@pytest.mark.parametrize("calls", [1, 10, 50])
@pytest.mark.parametrize("name", ["cuda_event_cold", "cuda_event_hot", "cuda_graph"])
@pytest.mark.parametrize(("direction", "kernels"), [("fwd", 1), ("bwd", 1), ("fwd_bwd", 2)])
def test_o24_a_call_takes_what_its_work_takes_whatever_the_block(name, calls, direction, kernels):
    cuda = FakeCuda()
    problem = Problem(seqlen=4, num_heads=1, head_dim=4, direction=direction)
    inputs = differentiable(problem, make_inputs(problem))
    step = make_step(Queueing(cuda).prepare(problem, inputs), problem, inputs, "bhsd")
    plan = SamplingPlan(min_block_ns=calls * kernels * QUEUED_MS * MS, warmup_ns=0, budget_ns=0)
    clock = device_clocks(cuda)[name]
    samples = interleave({"a": step.run}, clock, plan, random.Random(0), lambda _, block: block())["a"]
    assert samples.calls == min(calls, clock.most_calls)
    assert {ns / samples.calls for ns in samples.ns} == {kernels * QUEUED_MS * MS}


@pytest.mark.parametrize("direction", ["fwd", "bwd", "fwd_bwd"])
def test_o24_the_record_holds_the_time_of_one_call(finish, direction):
    cuda = FakeCuda()
    problem = Problem(seqlen=24, num_heads=1, head_dim=8, direction=direction)
    record = finish(problem, device_clocks(cuda)["cuda_event_hot"], Queueing(cuda))["queueing"]
    assert record.status == "ok", record.reason
    assert milliseconds(record.measurement) == {QUEUED_MS * (2 if direction == "fwd_bwd" else 1)}
    assert record.measurement.clock == "cuda_event_hot"


def test_o24_a_failure_of_queued_work_belongs_to_the_case_that_queued_it(finish):
    cuda = FakeCuda()

    class Recovering(CudaHotClock):
        """The device works again once the failure was raised, so that a later block could take the blame."""

        def time_block(self, run, calls):
            try:
                return super().time_block(run, calls)
            finally:
                cuda.failure = None

    problem = Problem(seqlen=24, num_heads=1, head_dim=8)
    records = finish(problem, Recovering(cuda, cuda.now), QueueingFailure(cuda), Queueing(cuda))
    failed, other = records["queueing_failure"], records["queueing"]
    assert (failed.status, failed.measurement) == ("error", None)
    assert "planted failure of queued work" in failed.reason
    assert other.status == "ok", other.reason
    assert milliseconds(other.measurement) == {QUEUED_MS}


# O25: a clock that reads 0, or next to nothing.


@pytest.mark.parametrize("one_call_ns", [0, 50])
def test_o25_a_target_of_seconds_over_an_estimate_of_nothing_is_a_bounded_block(finish, one_call_ns):
    class Coarse(PerfCounterClock):
        name = "coarse"

        def time_block(self, run, calls):
            return super().time_block(run, 1)._replace(ns=one_call_ns * calls, cpu_ns=None)

    plan = SamplingPlan(min_block_ns=3_000 * MS, warmup_ns=0, budget_ns=0)
    record = finish(Problem(seqlen=24, num_heads=1, head_dim=8), Coarse(), Stub(FakeCuda()), plan=plan)["stub"]
    assert record.status == "ok", record.reason
    assert record.measurement.calls_per_sample == plan.max_calls == 1000
    assert [flag.name for flag in record.flags] == ([] if one_call_ns else ["unstable"])


@pytest.mark.parametrize("share_of_zeros", [0.4, 1.0])
def test_o25_a_time_of_nothing_gives_no_rate(make_record, make_run, share_of_zeros):
    zeros = round(10 * share_of_zeros)
    measurement = make_record().measurement
    samples = (0,) * zeros + (MS,) * (10 - zeros)
    update = {"samples_ns": samples, "processes": (0,) * 10}
    record = make_record(measurement=measurement.model_copy(update=update))
    row = frame([make_run([record])]).iloc[0]
    rates = {name: metric.value(row) for name, metric in metrics.items() if name.startswith(("tflops", "bandwidth"))}
    assert len(rates) >= 5
    if share_of_zeros == 1.0:
        assert set(rates.values()) == {None}
    else:
        assert all(math.isfinite(value) for value in rates.values()), rates


# O26: the first call of a new shape or dtype takes 500 ms, later ones 1 ms.


class Compiling(Stub):
    name = "compiling"

    def work(self, problem, inputs):
        kind = (tuple(inputs.q.shape), problem.dtype)
        self.cuda.host_ns += MS if kind in self.seen else 500 * MS
        self.seen.add(kind)
        return attention(problem, inputs)


def test_o26_first_calls_stand_apart_and_every_case_is_warmed_up(finish):
    """Longer than the certificate problem, which would else have paid for the first call."""
    cuda = FakeCuda()
    member, clock = Compiling(cuda), PerfCounterClock(cuda.now)
    a, b = (Problem(seqlen=seqlen, num_heads=1, head_dim=8) for seqlen in (176, 208))
    other_dtype = Problem(seqlen=176, num_heads=1, head_dim=8, dtype="bfloat16")
    for problem, first_ms in ((a, 500), (b, 500), (a, 1), (other_dtype, 500)):
        record = finish(problem, clock, member)["compiling"]
        assert record.status == "ok", record.reason
        assert milliseconds(record.measurement) == {1.0}
        assert record.measurement.first_call_ns == first_ms * MS


def test_o26_a_recompilation_while_warming_up_is_not_sampled_either():
    """A guard that fails on the second call, as with `torch.compile`: still nothing but steady calls."""
    cuda = FakeCuda()
    costs = iter([500 * MS, 500 * MS])
    samples = interleave(
        {"a": lambda: setattr(cuda, "host_ns", cuda.host_ns + next(costs, MS))},
        PerfCounterClock(cuda.now),
        PLAN,
        random.Random(0),
        lambda _, block: block(),
    )["a"]
    assert set(samples.ns) == {MS}
    assert samples.calls == 1


def test_o26_the_mean_without_warm_up_would_be_fifty_times_as_long():
    assert (500 + 9 * 1.0) / 10 == 50.9


# O27: gradients that accumulate over timed calls.

TINY = {"seqlen": 8, "num_heads": 1, "head_dim": 4}
DIFFERENTIABLE = [name for name in QUICK if implementations.get(name).backward]


def test_o27_what_a_timer_with_backward_does():
    problem = Problem(**TINY, direction="fwd_bwd")
    inputs = differentiable(problem, make_inputs(problem))
    sums = []
    for _ in range(3):
        attention(problem, inputs).backward(inputs.dout)
        sums.append(float(inputs.q.grad.abs().sum()))
    assert sums == pytest.approx([sums[0], 2 * sums[0], 3 * sums[0]])
    assert sums[0] > 1


@pytest.mark.parametrize("direction", ["bwd", "fwd_bwd"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_o27_gradients_after_a_timed_loop_are_those_of_one_call(name, direction):
    problem = Problem(**TINY, direction=direction)
    member = implementations.get(name)
    inputs = differentiable(problem, make_inputs(problem, member.layout))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    first = {key: value.clone() for key, value in step.run().tensors().items()}
    PerfCounterClock().time_block(step.run, 3)
    last = step.run().tensors()
    assert {"dq", "dk", "dv"} <= set(first)
    for key, value in first.items():
        torch.testing.assert_close(last[key], value)
    assert [leaf.grad for leaf in (inputs.q, inputs.k, inputs.v)] == [None] * 3


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_o27_no_gradient_buffer_is_in_the_memory_of_a_later_call(name):
    problem = Problem(seqlen=64, num_heads=2, head_dim=16, direction="fwd_bwd")
    member, (probe, reason) = implementations.get(name), probe_for("cpu")
    assert probe is not None, reason
    inputs = differentiable(problem, make_inputs(problem, member.layout))
    step = make_step(member.prepare(problem, inputs), problem, inputs, member.layout)
    assert len({probe.read(step.run, receipt=False).peak_bytes for _ in range(3)}) == 1


# O28: an autotuner that runs a kernel on live buffers, or reuses its choice for another key.

BLOCKS = (8, 16, 64)


class Tuned(Stub):
    """A kernel that adds into its output, with the largest of three block sizes that divides the length."""

    name = "tuned"
    live = False
    one_key = False

    def __init__(self, cuda):
        super().__init__(cuda)
        self.tuned: list[tuple[int, str]] = []
        self.chosen: dict[object, int] = {}

    def prepare(self, problem, inputs):
        key = "any" if self.one_key else (problem.seqlen_q, problem.dtype)
        out = torch.zeros(*inputs.q.shape[:-1], inputs.v.shape[-1], dtype=inputs.q.dtype)
        if key not in self.chosen:
            self.tuned.append((problem.seqlen_q, problem.dtype))
            self.chosen[key] = max(block for block in BLOCKS if problem.seqlen_q % block == 0)
            for block in BLOCKS:
                self.add(problem, inputs, out if self.live else out.clone(), block)
        block = self.chosen[key]

        def run():
            if not self.live:
                out.zero_()
            return AttentionOutput(self.add(problem, inputs, out, block).clone())

        return Call(run, notes={"block": block})

    def add(self, problem, inputs, out, block):
        """Queries that fill no block are left out, as with a grid that is too small."""
        covered = problem.seqlen_q // block * block
        out[..., :covered, :] += attention(problem, inputs)[..., :covered, :]
        return out


class TunedOnLiveBuffers(Tuned):
    name = "tuned_on_live_buffers"
    live = True


class TunedForAnyKey(Tuned):
    name = "tuned_for_any_key"
    one_key = True


CHANGES = [("float32", 64), ("bfloat16", 64), ("bfloat16", 48)]


def test_o28_a_tuner_of_clean_buffers_tunes_for_every_dtype_and_length_and_its_choice_is_stored(finish):
    member = Tuned(FakeCuda())
    for dtype, seqlen in CHANGES:
        record = finish(Problem(seqlen=seqlen, num_heads=1, head_dim=8, dtype=dtype), PerfCounterClock(), member)
        assert record["tuned"].status == "ok", record["tuned"].reason
        assert record["tuned"].notes == {"block": 64 if seqlen == 64 else 16}
        assert (seqlen, dtype) in member.tuned


def test_o28_candidates_that_ran_on_live_buffers_are_seen_in_the_first_call(finish):
    member = TunedOnLiveBuffers(FakeCuda())
    problem = Problem(seqlen=64, num_heads=1, head_dim=8)
    inputs = make_inputs(problem)
    first = member.prepare(problem, inputs).run().out
    torch.testing.assert_close(first, 4 * attention(problem, inputs))
    record = finish(problem, PerfCounterClock(), TunedOnLiveBuffers(FakeCuda()))["tuned_on_live_buffers"]
    assert (record.status, record.measurement) == ("incorrect", None)


def test_o28_a_choice_reused_for_another_key_is_not_timed(finish):
    member = TunedForAnyKey(FakeCuda())
    member.chosen["any"] = 64
    record = finish(Problem(seqlen=48, num_heads=1, head_dim=8), PerfCounterClock(), member)["tuned_for_any_key"]
    assert (record.status, record.measurement) == ("incorrect", None)


@pytest.mark.parametrize("name", [*QUICK, pytest.param("naive_compiled", marks=pytest.mark.slow)])
def test_o28_every_implementation_is_right_on_its_first_call_after_another_dtype_and_length(name):
    """One object of the implementation goes through the changes, as in a run; outputs are new each time."""
    member = implementations.get(name)
    for dtype, seqlen in CHANGES:
        problem = Problem(seqlen=seqlen, num_heads=1, head_dim=16, dtype=dtype)
        inputs = make_inputs(problem, member.layout)
        first = member.prepare(problem, inputs).run().out.float()
        exact = attention(problem, make_inputs(Problem(**(problem.model_dump() | {"dtype": "float32"}))))
        got = first if member.layout == "bhsd" else first.transpose(1, 2)
        torch.testing.assert_close(got, exact, rtol=0, atol=0.05)
