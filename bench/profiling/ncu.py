"""Nsight Compute, through the package nsight-python: counters of the GPU over the kernels of a call."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from bench.profiling import Absence, Found, Subject, register_tool
from bench.profiling._ncu_metrics import read_result
from bench.profiling._operators import CALL
from bench.profiling._outside import counters_forbidden, needs_gpu, program, target, told
from bench.profiling._target import write_subject

SCRIPT = Path(__file__).with_name("_ncu_target.py")
PREFIX = "ncu-"


@register_tool
class NsightCompute:
    """Achieved bandwidth, occupancy, share of the tensor cores, and what warps wait for."""

    name: ClassVar[str] = "ncu"
    summary: ClassVar[str] = "bandwidth, occupancy, tensor-core share and stalls, from GPU counters"
    default: ClassVar[bool] = True

    def absence(self, subject: Subject) -> Absence | None:
        """It needs a GPU that may be counted, its program, and the package that reads its reports."""
        found = needs_gpu(subject, "ncu") or program("ncu", "install Nsight Compute (it comes with the CUDA toolkit)")
        if found is not None:
            return found
        if find_spec("nsight") is None:
            return Absence("the package nsight-python is not installed", "`pip install nsight-python`")
        return counters_forbidden()

    def look(self, subject: Subject, folder: Path) -> Found:
        """Collect the counters of one call, its kernels together."""
        file = write_subject(subject, folder / "subject.json").absolute()
        text = told("ncu", [*target(file, 0, SCRIPT)[:-1], str(folder.absolute() / PREFIX)], folder)
        reports = sorted(path.name for path in folder.glob(f"{PREFIX}*.ncu-rep"))
        return Found(
            files={name: f"open with `ncu-ui {name}`" for name in reports},
            parts={"kernels": (read_result(text, CALL),)},
        )
