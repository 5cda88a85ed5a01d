"""Nsight Systems: the time line of host, launches and kernels."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from bench.profiling import Absence, Found, Subject, register_tool
from bench.profiling._outside import needs_gpu, program, target, told
from bench.profiling._target import write_subject

REPORT = "nsys.nsys-rep"
CALLS = 5


@register_tool
class NsightSystems:
    """A time line for Nsight's own viewer."""

    name: ClassVar[str] = "nsys"
    summary: ClassVar[str] = "time line of host and GPU for Nsight Systems"
    default: ClassVar[bool] = False

    def absence(self, subject: Subject) -> Absence | None:
        """It needs its program, and a GPU."""
        return needs_gpu(subject, "nsys") or program("nsys", "install Nsight Systems (it comes with the CUDA toolkit)")

    def look(self, subject: Subject, folder: Path) -> Found:
        """Trace some calls."""
        options = ["--trace=cuda,nvtx", "--sample=none", "--force-overwrite=true", "--output", "nsys"]
        file = write_subject(subject, folder / "subject.json")
        told("nsys", ["nsys", "profile", *options, *target(file.absolute(), CALLS)], folder)
        return Found(files={REPORT: "open with `nsys-ui nsys.nsys-rep`, or `nsys stats nsys.nsys-rep` for tables"})
