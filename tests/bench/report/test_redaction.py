from __future__ import annotations

import base64
import gzip
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import planted
import pytest
from matplotlib.text import Text
from pydantic import ValidationError

from bench.cli._shared import build, build_in
from bench.evidence import Evidence
from bench.header import ALLOWED_VARIABLES, Diagnosis, Gpu
from bench.plots import Reading, draw_all
from bench.record import CheckResult, Energy, Record, Sampled, Telemetry
from bench.report.redaction import presentable, redacted
from bench.results import Run

HOST, USER, PLACE, TEAM, UUID = "node17x", "alice7f", "vault9k", "team5q", "GPU-12ab-uuid3z"
MARKS = (HOST, USER, PLACE, TEAM, UUID)
SECRET = (
    f"on {HOST}.cluster.example by {USER}: open '/home/{USER}/{PLACE} two/x.py' or /srv/{PLACE}/y or ~/{PLACE} or "
    f"C:\\Users\\{USER}\\{PLACE} or ../{PLACE}/z or git@git.example:{TEAM}/repo.git or "
    f"https://{USER}:pw@git.example/{TEAM} or {USER}@{HOST}.example ({HOST}) {UUID}"
)


def everywhere(value: Any, kept: tuple[str, ...] = ()) -> Any:
    """The same value with the secrets appended to every string but those whose words are fixed."""
    if isinstance(value, str):
        return f"{value} {SECRET}"
    if isinstance(value, dict):
        return {name: one if name in kept else everywhere(one, kept) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [everywhere(one, kept) for one in value]
    return value


HEADER = ("type", "level", "kind", "uuid", "hostname", "command")
RECORD = ("type", "problem", "status", "name")
"""Fields whose words are fixed, or that get a secret of their own below."""


def secretive_run() -> Run:
    """A run whose header, records and evidence hold the secrets in every string that may hold any text."""
    measured = {
        "others": (Sampled(clock="c", reason="r"),),
        "telemetry": (
            Telemetry(device=UUID, window_s=1.0, readings={"governor": "p", "mhz": None}, reasons={"mhz": "n"}),
        ),
        "energy": Energy(joules_per_call=None, method="none", reason="no"),
    }
    judged = planted.agreement(
        checks={"needle": CheckResult(passed=True, error=0.0, limit=1.0, detail="d")}, missing={"lse": "m"}
    )
    records = [
        planted.record("c", 256),
        planted.record("c", 512),
        planted.record("a", 128, measured=measured, flags=[("unstable", "u")], judged=judged).model_copy(
            update={"notes": {"note": {"deep": ["n"]}}}
        ),
        planted.record("b", 128, status="crashed", reason="r"),
    ]
    run = planted.run(
        records,
        header={"diagnoses": (Diagnosis(name="n", level="note", seen="s", fix="f"),)},
        hostname=f"{HOST}.cluster.example",
        gpus=(Gpu(name="g", uuid=UUID),),
        gpus_reason=None,
    )
    header = everywhere(run.header.model_dump(), HEADER)
    header["command"] = (
        f"attention-bench run --load ../{PLACE}/mine.py --load={PLACE}.py -o '/home/{USER}/{PLACE} x' -i naive"
    )
    header["environment"]["hostname"] = f"{HOST}.cluster.example"
    evidence = Evidence(kind="demonstration", name="n", rows=({"k": SECRET, "x": 1},), seconds=0.1)
    dirty = [Record.model_validate(everywhere(record.model_dump(), RECORD)) for record in records]
    assert run.end is not None
    return Run(
        path=Path(f"/home/{USER}/{PLACE}/run.jsonl"),
        header=type(run.header).model_validate(header),
        records=dirty,
        end=run.end.model_copy(update={"ended_at": SECRET}),
        evidence=[evidence],
    )


def lines(run: Run) -> str:
    parts = [run.header, *run.records, *run.evidence, *([run.end] if run.end else [])]
    return "\n".join(part.model_dump_json() for part in parts) + str(run.path)


def test_the_planted_run_holds_every_secret() -> None:
    text = lines(secretive_run())
    assert all(mark in text for mark in MARKS)
    assert text.count(SECRET.partition(":")[0]) > 30


def test_no_secret_is_left_in_any_string() -> None:
    (clean,), _ = redacted([secretive_run()])
    text = lines(clean).lower()
    assert not [mark for mark in MARKS if mark.lower() in text]
    assert "git.example" not in text and "cluster.example" not in text


def dataset_of(html: str) -> str:
    """All data that the page holds compressed."""
    packed = re.findall(r'id="(dataset|details)">([^<]+)<', html)
    assert [name for name, _ in packed] == ["dataset", "details"]
    return "\n".join(gzip.decompress(base64.b64decode(text)).decode() for _, text in packed)


@pytest.mark.parametrize("many", [False, True])
def test_no_secret_is_left_in_any_file_of_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    """Page with its dataset, summary, figures, and with many records the raw lines beside the page."""
    if many:
        monkeypatch.setattr("bench.report.samples.MAX_RECORDS", 1)
    monkeypatch.chdir(tmp_path)
    runs = [secretive_run()]
    page, said = build_in(runs, tmp_path / "report", redact=True)
    text = page.read_text(encoding="utf-8")
    (clean,), _ = redacted(runs)
    drawn = [one for _, found in draw_all(Reading([clean]))[0] for one in found]
    texts = [text.get_text() for one in drawn for text in one.figure.findobj(Text)]
    contents = {path.name: path.read_bytes().decode("latin-1") for path in page.parent.iterdir()}
    contents |= {"dataset": dataset_of(text), "said": said, "figures": "\n".join(texts), "names": " ".join(contents)}
    assert drawn and {name.rpartition(".")[2] for name in contents} >= {"html", "md", "png"}
    assert any(name.endswith(".jsonl") for name in contents) == many
    leaks = {name: [mark for mark in MARKS if mark.lower() in content.lower()] for name, content in contents.items()}
    assert not {name: marks for name, marks in leaks.items() if marks}
    assert "HOST-1" in text and "HOST-1" in contents["summary.md"]


def test_what_is_no_secret_stays() -> None:
    run = planted.run(
        [
            planted.record("naive", 128, flags=[("contended", "wall time was 3.0x; 71.2 GB/s and 2/3 of exp(s)/sum")]),
            planted.record("sdpa_flash", 128),
        ],
        hostname="flash",
    )
    (clean,), _ = redacted([run])
    assert clean.records[0].flags == run.records[0].flags
    assert [record.implementation for record in clean.records] == ["naive", "sdpa_flash"]
    assert clean.records[0].measurement == run.records[0].measurement
    assert clean.header.environment.cpu == run.header.environment.cpu
    assert clean.header.ceilings == run.header.ceilings
    assert clean.header.command == run.header.command


def test_the_command_keeps_its_options_and_loses_its_files() -> None:
    (clean,), _ = redacted([secretive_run()])
    assert shlex.split(clean.header.command) == [
        "attention-bench", "run", "--load", "PATH", "--load=PATH", "-o", "PATH", "-i", "naive",
    ]  # fmt: skip


def test_a_list_that_begins_with_a_number_is_scrubbed_as_well() -> None:
    record = planted.record("a").model_copy(update={"notes": {"tried": [1, f"/srv/{PLACE}/x", None]}})
    (clean,), _ = redacted([planted.run([record])])
    assert clean.records[0].notes == {"tried": [1, "PATH", None]}


def test_a_user_whose_home_only_a_check_or_evidence_names_is_known_everywhere() -> None:
    for place in ("check", "evidence"):
        path = f"/home/{USER}/x"
        checks = {"needle": CheckResult(passed=True, error=0.0, limit=1.0, detail=path)} if place == "check" else {}
        run = planted.run(
            [planted.record("a", judged=planted.agreement(checks=checks), flags=[("unstable", f"by {USER}")])]
        )
        if place == "evidence":
            run = replace(run, evidence=[Evidence(kind="demonstration", name="n", rows=({"k": path},), seconds=0.1)])
        (clean,), _ = redacted([run])
        assert clean.records[0].flags[0].reason == "by USER"


def test_files_of_an_earlier_report_do_not_stay_beside_a_redacted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures under names that the new page does not use, and raw lines; what is not ours stays."""
    monkeypatch.setattr("bench.report.samples.MAX_RECORDS", 1)
    runs = [planted.run([planted.record(name, n) for n in (128, 256) for name in (HOST, "b")], hostname=HOST)]
    folder = tmp_path / "report"
    build_in(runs, folder)
    (folder / "mine.png").write_bytes(b"x")
    before = {path.name for path in folder.iterdir()}
    assert any(name.endswith(".jsonl") for name in before) and sum(name.endswith("@2x.png") for name in before) > 1
    monkeypatch.setattr("bench.report.samples.MAX_RECORDS", 1000)
    build_in(runs, folder, redact=True, figures=False)
    assert {path.name for path in folder.iterdir()} == {"index.html", "summary.md", "mine.png"}


def test_the_folder_is_named_by_what_is_shown(tmp_path: Path) -> None:
    """A file from elsewhere may hold any text as its run's id."""
    run = planted.run([planted.record()], run_id=f"nightly-{HOST}", hostname=HOST)
    path = tmp_path / "run.jsonl"
    parts = (run.header, *run.records, *([] if run.end is None else [run.end]))
    path.write_text("".join(f"{part.model_dump_json()}\n" for part in parts), encoding="utf-8")
    page = build([path], tmp_path / "reports", redact=True)
    assert page.parent.name == "nightly-HOST-1"
    assert not [one for one in (tmp_path / "reports").rglob("*") if HOST in one.name]


def test_hosts_stay_apart() -> None:
    runs = [planted.run([planted.record()], run_id=name, hostname=name) for name in ("north", "south", "north")]
    clean, _ = redacted(runs)
    assert [run.header.environment.hostname for run in clean] == ["HOST-1", "HOST-2", "HOST-1"]


def test_notes_are_scrubbed_with_the_names_of_the_runs() -> None:
    note = planted.notes()[0]
    note = replace(note, content={"found": f"on {HOST} in /srv/{PLACE}/x", "rows": [{"a": HOST}]})
    _, (clean,) = redacted([secretive_run()], [note])
    assert clean.content == {"found": "on HOST-1 in PATH", "rows": [{"a": "HOST-1"}]}


def test_a_user_called_root_does_not_take_root_mean_square_away() -> None:
    run = planted.run([planted.record("a", status="crashed", reason="root mean square in /home/root/x")])
    (clean,), _ = redacted([run])
    assert clean.records[0].reason == "root mean square in PATH"


@pytest.mark.parametrize("hidden", [False, True])
def test_variables_outside_the_list_never_appear(hidden: bool) -> None:
    run = planted.run([planted.record()], variables={"OMP_NUM_THREADS": "2", "AWS_SECRET": "k", "HOME": "h"})
    clean = redacted([run])[0][0] if hidden else presentable(run)
    assert clean.header.environment.variables == {"OMP_NUM_THREADS": "2"}
    assert set(clean.header.environment.variables) <= set(ALLOWED_VARIABLES)
    assert presentable(clean) is clean


def test_planting_reaches_fields_that_refuse_no_text() -> None:
    """The vocabulary that is left alone really is one: such a field refuses the secret."""
    for name in ("status", "type"):
        with pytest.raises(ValidationError):
            Record.model_validate(planted.record().model_dump() | {name: SECRET})
