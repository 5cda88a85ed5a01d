"""A digest survives its file, and no figure is missing without a reason."""

from __future__ import annotations

import pytest
from planted_profile import digest, memory, overhead, stage
from pydantic import ValidationError

from bench.digest import Digest, MemoryTimeline, Stage, Tensor, Tool, load_digest, save_digest
from bench.errors import OutputError
from bench.problem import Problem


def test_a_digest_is_read_back_as_it_was_from_its_file_and_from_its_folder(tmp_path):
    first = digest()
    path = save_digest(first, tmp_path)
    assert load_digest(path) == first
    assert load_digest(tmp_path) == first


@pytest.mark.parametrize("field", ["flop", "moved_bytes", "roof"])
def test_a_stage_without_a_figure_says_why(field):
    with pytest.raises(ValidationError, match="must say why"):
        stage("softmax", 1.0, **{field: None})
    assert stage("softmax", 1.0, reason="not known", **{field: None}).reason == "not known"


@pytest.mark.parametrize("status", ["failed", "unavailable", "not_applicable"])
def test_a_tool_that_gave_nothing_says_why(status):
    with pytest.raises(ValidationError, match="must say why"):
        Tool(name="ncu", status=status)


def test_owners_add_up_to_the_peak():
    good = memory(Problem(seqlen=64))
    with pytest.raises(ValidationError, match="add up"):
        MemoryTimeline(**good.model_dump() | {"owners": (Tensor(name="scores", peak_bytes=1, count=1),)})


def test_the_intensity_is_that_of_the_stage_and_missing_where_a_count_is():
    assert stage("softmax", 1.0, flop=10, moved_bytes=4).intensity == 2.5
    assert stage("softmax", 1.0, moved_bytes=None, reason="-").intensity is None
    assert overhead(1.0).intensity is None


def test_stages_are_found_by_name_and_half():
    back = stage("softmax", 20.0, half="backward")
    one = digest(stages=(stage("softmax", 10.0), back, overhead(70.0)))
    assert one.stage("softmax", "backward") == back
    assert back.label == "softmax, backward"
    assert one.stage("fused attention") is None
    assert one.overhead_share == 0.7


@pytest.mark.parametrize("text", [None, "{}", '{"type": "profile"}', "\xff", "not json"])
def test_what_is_no_digest_is_an_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "digest.json"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(OutputError, match=r"digest\.json"):
        load_digest(path)


def test_no_field_is_added_in_silence():
    with pytest.raises(ValidationError):
        Digest(**digest().model_dump() | {"latency_ms": 1.0})
    assert "latency_ms" not in Stage.model_fields
