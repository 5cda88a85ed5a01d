"""Checks of variables and software: threads, the allocator, debugging aids, torch itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.doctor._view import Check, View, fine, found
from bench.environment import ALLOCATORS
from bench.header import Diagnosis

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
BINDING_VARIABLES = ("KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")
TORCH_MINIMUM = (2, 11)
"""As ``pyproject.toml`` asks for; an environment can still have been changed by hand."""
CHECKERS = (
    # Parts of the names of libraries that watch every allocation or memory access.
    "asan",
    "tsan",
    "msan",
    "ubsan",
    "valgrind",
    "vgpreload",
    "efence",
    "duma",
    "memray",
    "heaptrack",
    "libmemusage",
    "libmtrace",
    "malloc_debug",
)
ALLOCATOR_LIBRARIES = ("jemalloc", "tcmalloc", "mimalloc", "hoard", "snmalloc")


def _set(view: View, name: str) -> bool:
    """Whether a switch is on: set, and neither empty nor 0."""
    return view.environ.get(name, "") not in ("", "0")


def threads(view: View) -> Iterator[Diagnosis]:
    """More threads than cores wait for one another; fewer measure a smaller machine; bound ones may share a core."""
    clean = True
    for name in THREAD_VARIABLES:
        value = view.environ.get(name)
        if value is None:
            continue
        first = value.partition(",")[0].strip()  # a list is by level of nesting
        if not first.isdigit() or int(first) == 0:
            clean = False
            fix = f"Set {name} to a number of at most {view.cores}, or unset it."
            yield found("threads", "warning", f"{name}={value} is no number of threads", fix)
        elif int(first) > view.cores:
            clean = False
            yield found("threads", "warning", f"{name}={value} on {view.cores} cores", f"Unset {name}.")
        elif int(first) < view.cores:
            clean = False
            fix = f"Unset {name} unless you mean to measure fewer threads."
            yield found("threads", "note", f"{name}={value} on {view.cores} cores", fix)
    bound = [f"{name}={view.environ[name]}" for name in BINDING_VARIABLES if view.environ.get(name)]
    if bound:
        fix = "Make sure that no two threads are bound to one core, or unset it."
        yield found("thread binding", "note", ", ".join(bound), fix)
    if clean and not bound:
        yield fine("threads", f"no variable changes their number; {view.cores} cores")


def allocator(view: View) -> Iterator[Diagnosis]:
    """Where large blocks come from decides CPU timings, and the record names one setting."""
    wanted = ALLOCATORS.get(view.allocator, {})
    own = {name: value for name, value in view.environ.items() if name.startswith("MALLOC_")}
    odd = {name: value for name, value in own.items() if wanted.get(name) != value}
    replaced = [name for name in ALLOCATOR_LIBRARIES if name in view.environ.get("LD_PRELOAD", "")]
    tunables = view.environ.get("GLIBC_TUNABLES", "")
    seen = ", ".join(f"{name}={value}" for name, value in sorted(odd.items()))
    if replaced:
        fix = "Unset LD_PRELOAD: the settings named 'warm' and 'default' are those of glibc's allocator."
        yield found("allocator", "warning", f"LD_PRELOAD replaces malloc by {', '.join(replaced)}", fix)
    elif "glibc.malloc" in tunables:
        fix = "Unset GLIBC_TUNABLES: it overrides the allocator setting that the record names."
        yield found("allocator", "warning", f"GLIBC_TUNABLES={tunables}", fix)
    elif any(name not in wanted for name in odd):
        fix = f"Unset them: workers would inherit them beside the setting {view.allocator!r}."
        yield found("allocator", "warning", seen, fix)
    elif odd:
        fix = f"Nothing: workers start with the setting {view.allocator!r} instead."
        yield found("allocator", "note", seen, fix)
    else:
        yield fine("allocator", f"{view.allocator}; no variable speaks against it")
    if view.on_gpu and _set(view, "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        yield _uncached()


def _uncached() -> Diagnosis:
    """Fatal: each tensor is then taken from the driver and given back, which waits for the device every time, so
    times are those of the driver's allocator, and peaks read from the caching allocator are zero.
    """
    seen = "PYTORCH_NO_CUDA_MEMORY_CACHING: every allocation waits for the device"
    return found("CUDA caching allocator", "fatal", seen, "Unset PYTORCH_NO_CUDA_MEMORY_CACHING.")


def memory_checker(view: View) -> Iterator[Diagnosis]:
    """Fatal: a library that watches every allocation or access slows memory traffic many times over and arithmetic
    hardly, so even the order of implementations is wrong, and it keeps freed memory, so peaks are wrong as well.
    """
    preloaded = view.environ.get("LD_PRELOAD", "")
    names = [name for name in CHECKERS if name in preloaded]
    if names:
        fix = "Unset LD_PRELOAD, or run without the checker."
        yield found("memory checker", "fatal", f"LD_PRELOAD={preloaded} watches memory ({', '.join(names)})", fix)
    else:
        yield fine("memory checker", "none preloaded")


def debugging(view: View) -> Iterator[Diagnosis]:
    """Aids that slow down Python, and with it the smallest cells most; large ones hardly notice."""
    facts = sorted(view.interpreter)
    facts += [f"PYTHONMALLOC={value}" for value in [view.environ.get("PYTHONMALLOC", "")] if "debug" in value]
    facts += [name for name in ("PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONPROFILEIMPORTTIME") if _set(view, name)]
    facts += [f"{name}={view.environ[name]}" for name in ("TORCH_LOGS", "TORCH_TRACE") if view.environ.get(name)]
    tracer = re.search(r"^TracerPid:\s*([1-9]\d*)", view.text("proc/self/status") or "", re.MULTILINE)
    facts += [f"process {tracer[1]} traces this one (a debugger or strace)"] if tracer else []
    if facts:
        yield found("debugging", "warning", ", ".join(facts), "Measure without them.")
    else:
        yield fine("debugging", "nothing slows the interpreter down")


def launch_blocking(view: View) -> Iterator[Diagnosis]:
    """Fatal on a GPU: every launch then waits for its kernel, so times contain one round trip per kernel and favour
    whatever launches few, which is no property of the implementations.
    """
    if not view.on_gpu:
        return
    if _set(view, "CUDA_LAUNCH_BLOCKING"):
        seen = f"CUDA_LAUNCH_BLOCKING={view.environ['CUDA_LAUNCH_BLOCKING']}: every launch waits for its kernel"
        yield found("CUDA launches", "fatal", seen, "Unset CUDA_LAUNCH_BLOCKING.")
    else:
        yield fine("CUDA launches", "asynchronous")


def triton_interpreter(view: View) -> Iterator[Diagnosis]:
    """Fatal on a GPU: Triton's kernels would then be run by NumPy on the CPU and timed as if they were the kernels.
    On a CPU the interpreter is the only way to run them at all, and such cells are verified without being timed.
    """
    if not view.on_gpu:
        return
    if _set(view, "TRITON_INTERPRET"):
        seen = "TRITON_INTERPRET: Triton kernels would run in Python on the CPU"
        yield found("Triton", "fatal", seen, "Unset TRITON_INTERPRET, or verify with --device cpu.")
    else:
        yield fine("Triton", "compiles")


def injection(view: View) -> Iterator[Diagnosis]:
    """Profilers and sanitizers enter CUDA programs through these variables. What they cost differs widely, so this
    is a warning.
    """
    names = [n for n in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH") if view.environ.get(n)]
    if view.on_gpu and names:
        seen = ", ".join(f"{name}={view.environ[name]}" for name in names)
        yield found("CUDA injection", "warning", seen, "Measure outside the profiler or sanitizer.")


def torch_build(view: View) -> Iterator[Diagnosis]:
    """A torch without CUDA leaves the GPU of the machine unmeasured; an old one lacks kernels and fixes."""
    number, build = view.torch
    if number is None:
        yield found("torch", "warning", "not installed", "Run `make setup`.")
        return
    seen = f"{number}, built for {build or 'nobody knows what'}"
    parts = re.match(r"(\d+)\.(\d+)", number)
    if parts and (int(parts[1]), int(parts[2])) < TORCH_MINIMUM:
        fix = f"Install torch {'.'.join(map(str, TORCH_MINIMUM))} or later."
        yield found("torch", "warning", seen, fix)
    elif view.has_gpu and build == "cpu":
        fix = "Install a CUDA build: `make setup TORCH_INDEX_URL=...` (pytorch.org names the address)."
        yield found("torch", "warning", f"{seen}, on a machine with a GPU", fix)
    else:
        yield fine("torch", seen)


SOFTWARE_CHECKS: tuple[Check, ...] = (
    threads,
    allocator,
    memory_checker,
    debugging,
    launch_blocking,
    triton_interpreter,
    injection,
    torch_build,
)
