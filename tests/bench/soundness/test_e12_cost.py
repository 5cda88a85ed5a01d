import pytest

from bench.soundness.e12_cost import PYPERF_PROCESSES, Cost


def run(wall_s, spread=0.004, processes=6):
    return [{"estimate": spread * (i - 2.5) / 2.5, "wall_s": wall_s} for i in range(processes)]


def observations(ours=0.3, torch=0.4, pyperf=4.0, pieces=PYPERF_PROCESSES, spread=0.004):
    turns = {f"turns/{n}": {"ours": run(ours, spread), "torch": run(torch)} for n in range(3)}
    piece = {"wall_s": pyperf / 2, "values": [0.001] * 3, "runs": 1}
    pieces_found = {f"pyperf/{n}": {"a": piece, "b": piece} for n in range(pieces)}
    full = {"full/0": {"wall_s": 6.0, "estimates": [0.001 * i for i in range(6)]}}
    return {"start/0": {"wall_s": 3.0}} | turns | pieces_found | full


def test_less_time_than_the_others_meets_the_target():
    finding = Cost().judge(observations())
    assert finding.met is True
    assert [row["method"] for row in finding.rows] == ["ours", "torch", "pyperf", "ours, the protocol of a verdict"]
    assert finding.rows[0]["seconds"] == pytest.approx(6 * 0.3)


def test_more_time_than_torch_misses_it():
    assert Cost().judge(observations(ours=0.5)).met is False


def test_more_than_half_the_time_of_pyperf_misses_it():
    # 20 pieces of 0.4 s are 8 s; ours take 1.8 s and the start 3 s
    assert Cost().judge(observations(pyperf=0.4)).met is False
    assert Cost().judge(observations(pyperf=0.5)).met is True


def test_an_interval_that_stays_wide_misses_it():
    finding = Cost().judge(observations(ours=0.1, spread=0.05))
    assert finding.met is False
    assert finding.rows[0]["reached"] == 0


def test_processes_after_the_interval_was_narrow_enough_do_not_count():
    found = observations()
    found["turns/0"]["ours"] = run(0.3, processes=9)
    assert Cost().judge(found).rows[0]["processes"] == 6


def test_missing_pieces_of_pyperf_are_scaled_and_that_is_said():
    whole, part, one = (Cost().judge(observations(pieces=pieces)) for pieces in (PYPERF_PROCESSES, 5, 1))
    assert whole.rows[2]["seconds"] == pytest.approx(80)
    assert part.rows[2]["seconds"] == pytest.approx(80)
    assert one.rows[2]["seconds"] == pytest.approx(42)  # one piece is a calibration and a process, of 21 in all
    assert "scaled" not in whole.found and "scaled from 5 of 20 processes" in part.found


@pytest.mark.parametrize("missing", ["start/0", "turns/", "pyperf/0"])
def test_too_little_says_nothing(missing):
    found = {unit: one for unit, one in observations().items() if not unit.startswith(missing)}
    assert Cost().judge(found).met is None


def test_quick_units_are_units_of_the_whole():
    assert set(Cost().units(True)) < set(Cost().units(False))
