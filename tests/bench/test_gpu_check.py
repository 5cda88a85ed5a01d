"""``scripts/gpu_check.sh`` with a stand-in for Python: whatever fails, hangs or is missing, the table comes in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.sh"
STUB = r"""#!/usr/bin/env bash
words=" $* "
case "$*" in
  *torch.cuda.is_available*) echo "torch planted"; [ "$STUB_GPU" = yes ]; exit ;;
  "- torch "*) echo $STUB_MISSING; exit 0 ;;
  *sys.version_info*) echo 3.12; exit 0 ;;
esac
echo "$*" >>"$STUB_FOLDER/calls"
if [ -n "$STUB_HANG" ] && [[ "$*" =~ $STUB_HANG ]]; then
  trap '' TERM
  echo $$ >>"$STUB_FOLDER/hanging"
  while :; do sleep 0.2; done
fi
if [ -n "$STUB_FAIL" ] && [[ "$*" =~ $STUB_FAIL ]]; then echo "planted | failure"; exit 7; fi
case "$*" in
  *"-m pytest"*) echo "3 passed in 0.1s" ;;
  *"bench rank"*) echo "| implementation | ratio |" ;;
esac
"""
NVIDIA_SMI = """#!/usr/bin/env bash
[ "${STUB_SMI:-$STUB_GPU}" = yes ] && echo 'Planted H200, 570.1'
"""
GPU_STEPS = {
    "kernels-float32": "-k float32$",
    "kernels-float16": "float16 and not bfloat16",
    "kernels-bfloat16": "-k bfloat16$",
    "kernels-others": "not float32 and not float16",
    "gate": "verify --mutants",
    "tests": "-m pytest .*--ignore",
    "sweep": "bench run --sweep gpu_quick",
    "soundness": "--only e08_memory",
    "timer": "--only e07_timer",
    "profile-naive": "profile -i naive",
    "profile-sdpa_flash": "profile -i sdpa_flash",
    "profile-triton_flash": "profile -i triton_flash",
    "report": "bench report .*/report$",
    "explain": "bench explain",
    "page": "bench report .*--profiles",
    "rank": "bench rank",
    "ratios": "flash_ratios",
}
"""Names of steps, and the words by which the stand-in knows them."""
ON_THE_CPU = set(GPU_STEPS) - {name for name in GPU_STEPS if name.startswith("kernels")} - {"profile-triton_flash"}


@pytest.fixture
def stage(tmp_path: Path):
    """Starts the script; the result has its table as a dict of step to outcome."""
    tools = tmp_path / "tools"
    tools.mkdir()
    stub(tools / "python", STUB)
    stub(tools / "nvidia-smi", NVIDIA_SMI)

    def environment(gpu: bool, limit: int, **variables: str) -> dict[str, str]:
        plain = {
            "STUB_FOLDER": str(tmp_path),
            "STUB_GPU": "yes" if gpu else "no",
            "STUB_FAIL": "",
            "STUB_HANG": "",
            "STUB_MISSING": "",
            "PYTHON": str(tools / "python"),
            "LIMIT_S": str(limit),
            "PATH": f"{tools}:{os.environ['PATH']}",
        }
        return os.environ | plain | variables

    def start(gpu: bool = True, limit: int = 345, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(SCRIPT), "out"],
            cwd=tmp_path,
            env=environment(gpu, limit, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def stub(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def outcomes(process: subprocess.Popen[str]) -> tuple[dict[str, str], str, str]:
    """The last table by step, stdout and stderr."""
    out, err = process.communicate(timeout=300)
    rows = [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("| ")]
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[0] != "step"}, out, err


@pytest.mark.parametrize(("gpu", "steps"), [(True, set(GPU_STEPS)), (False, ON_THE_CPU)])
def test_all_steps_run_and_the_tables_come_last(stage, gpu, steps, tmp_path):
    process = stage(gpu=gpu)
    table, out, err = outcomes(process)
    assert table == dict.fromkeys(steps, "ok")
    assert process.returncode == 0
    assert ("torch sees no CUDA device" in err) is not gpu
    assert f"device: {'Planted H200, 570.1' if gpu else 'no GPU'}" in out
    assert "tests: 3 passed in 0.1s" in out
    assert out.index("| step |") < out.index("| implementation | ratio |")
    assert {path.stem for path in (tmp_path / "out").glob("*.log")} == {*steps, "torch"}


@pytest.mark.parametrize("failing", GPU_STEPS)
def test_a_step_that_fails_is_named_and_stops_no_other(stage, failing):
    process = stage(STUB_FAIL=GPU_STEPS[failing])
    table, *_ = outcomes(process)
    assert table.pop(failing) == "failed (7): planted / failure"
    assert table == dict.fromkeys(set(GPU_STEPS) - {failing}, "ok")
    assert process.returncode == 1


def test_a_gpu_that_torch_does_not_see_is_a_failure_and_the_small_part_still_runs(stage):
    process = stage(gpu=False, STUB_SMI="yes")
    table, *_ = outcomes(process)
    assert table.pop("torch") == "sees no GPU, though one is there: torch planted"
    assert table == dict.fromkeys(ON_THE_CPU, "ok")
    assert process.returncode == 1


def test_a_gpu_without_nvidia_smi_is_still_used(stage):
    table, out, _ = outcomes(stage(STUB_SMI="no"))
    assert table == dict.fromkeys(GPU_STEPS, "ok")
    assert "device: a GPU that nvidia-smi does not name, torch planted" in out


def test_a_package_whose_own_package_is_missing_is_named_by_that(tmp_path):
    """The part of the script that looks for packages, with a planted one."""
    (tmp_path / "jinja2.py").write_text("import markupsafe_planted.inner")
    text = SCRIPT.read_text()
    code = text.split("<<'END'\n")[1].split("\nEND\n")[0]
    done = subprocess.run(
        [sys.executable, "-", "jinja2", "planted_name", "rich"],
        input=code,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["markupsafe_planted", "planted_name"]


def alive(folder: Path) -> list[int]:
    """Hanging stand-ins that were not ended."""
    found = [int(line) for line in (folder / "hanging").read_text().split()]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in found):
        time.sleep(0.1)
    return [pid for pid in found if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
@pytest.mark.parametrize("hanging", ["gate", "sweep", "profile-naive"])
def test_a_step_that_hangs_and_ignores_signals_is_ended_at_its_limit(stage, hanging, tmp_path):
    process = stage(limit=40, STUB_HANG=GPU_STEPS[hanging])
    table, *_ = outcomes(process)
    assert table[hanging].startswith("ended after")
    assert set(table) == set(GPU_STEPS)
    assert alive(tmp_path) == []


def test_out_of_time_later_steps_are_not_run_and_the_table_still_comes(stage, tmp_path):
    process = stage(limit=4, gpu=False, STUB_HANG="-m pytest|-m bench")
    table, *_ = outcomes(process)
    assert process.returncode == 1
    assert any("no time was left" in outcome or "out of time" in outcome for outcome in table.values())
    assert "ok" not in table.values() or set(table) >= {"tests", "gate"}
    assert alive(tmp_path) == []


def test_what_no_limit_ends_the_watchdog_does(stage, tmp_path):
    """``timeout`` itself does not come back, as where a process hangs in the driver."""
    hung = '#!/usr/bin/env bash\n[ "$1" = 60 ] && exit 1\n[ "$1" = 10 ] && exit 1\n[ "$1" = 5 ] && exit 1\nsleep 1000\n'
    stub(tmp_path / "tools" / "timeout", hung)
    process = stage(limit=4, gpu=False)
    table, *_ = outcomes(process)
    assert table["tests"] == "was still running"
    assert table["gpu_check.sh"] == "out of time: ended what was still running"
    assert process.returncode == 1


def test_ended_from_outside_it_prints_what_there_is(stage, tmp_path):
    process = stage(STUB_HANG=GPU_STEPS["sweep"])
    while not (tmp_path / "hanging").exists():
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    table, *_ = outcomes(process)
    assert table["gate"] == "ok"
    assert table["sweep"] == "was still running"
    assert "ended from outside" in table["gpu_check.sh"]
    assert alive(tmp_path) == []


def test_missing_packages_are_named_with_the_command_that_fetches_them(stage, tmp_path):
    table, _, err = outcomes(stage(STUB_MISSING="pydantic cyclopts"))
    assert table["packages"] == "missing: pydantic cyclopts"
    assert "pip download" in err and "--python-version 3.12" in err
    assert err.split("-d wheels ")[1].splitlines()[0].strip() == "pydantic cyclopts"


def test_wheels_are_installed_without_a_network_before_anything_else(stage, tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "pydantic-2.whl").touch()
    table, *_ = outcomes(stage(WHEELS="wheels"))
    assert table["wheels"] == "ok"
    first = (tmp_path / "calls").read_text().splitlines()[0]
    assert "pip install" in first and "--no-index" in first and first.endswith(str(folder / "pydantic-2.whl"))


def test_no_folder_is_a_usage_error(tmp_path):
    done = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr
    (tmp_path / "file").touch()
    done = subprocess.run(["bash", str(SCRIPT), str(tmp_path / "file")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "OUT_DIR must be writable" in done.stderr
    variables = os.environ | {"WHEELS": str(tmp_path / "nothing")}
    command = ["bash", str(SCRIPT), str(tmp_path / "out")]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "WHEELS must be a folder" in done.stderr


def test_what_the_script_calls_imports_none_of_the_packages_that_a_borrowed_machine_may_lack():
    code = (
        "import sys\n"
        "for name in ('altair', 'vl_convert', 'filelock', 'pyarrow', 'pyperf'): sys.modules[name] = None\n"
        "import bench.cli, bench.report, bench.explanation, bench.profiling, bench.runner\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
