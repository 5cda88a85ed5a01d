"""The environment record: an allow-list for variables, and a reason wherever something is unknown."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from bench.environment import ALLOCATORS, allowed_variables, read_environment, worker_variables


def test_only_variables_on_the_list_are_kept():
    planted = {
        "OMP_NUM_THREADS": "2",
        "AWS_SECRET_ACCESS_KEY": "planted",
        "TORCH_SECRET": "planted",
        "MALLOC_": "planted",
    }
    assert allowed_variables(planted) == {"OMP_NUM_THREADS": "2"}


def test_allocator_variables_are_recorded():
    environment = read_environment("cpu", "warm", 2, "cpu")
    assert environment.variables.items() >= ALLOCATORS["warm"].items()
    assert environment.allocator == "warm"
    assert "MALLOC_MMAP_MAX_" not in worker_variables("default")


def test_the_machine_is_described():
    environment = read_environment("cpu", "warm", 2, "cpu")
    assert environment.cores >= 1
    assert environment.cpu
    assert environment.packages["torch"]
    assert (environment.gpus is None) == (environment.gpus_reason is not None)


class FakeNvmlError(Exception):
    pass


def fake_nvml(**changes):
    def fail():
        raise FakeNvmlError("Driver/library version mismatch")

    module = SimpleNamespace(
        NVMLError=FakeNvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: ["Card A", b"Card B"][handle],
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
    )
    for name in changes:
        setattr(module, name, lambda *_: fail())
    return module


def test_gpus_are_named_by_uuid(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    gpus = read_environment("cpu", "warm", None, None).gpus
    assert [(gpu.name, gpu.uuid) for gpu in gpus] == [("Card A", "GPU-0"), ("Card B", "GPU-1")]


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetName", "nvmlDeviceGetUUID"])
def test_nvml_that_fails_is_null_with_its_reason(monkeypatch, call):
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(**{call: True}))
    environment = read_environment("cpu", "warm", None, None)
    assert environment.gpus is None
    assert "version mismatch" in environment.gpus_reason


def test_nvml_that_is_not_installed_is_null_with_its_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    environment = read_environment("cpu", "warm", None, None)
    assert environment.gpus is None
    assert "nvidia-ml-py is not installed" in environment.gpus_reason


def test_a_real_absent_library_gives_a_reason():
    environment = read_environment("cpu", "warm", None, None)
    assert environment.gpus is not None or environment.gpus_reason.startswith("NVML")


def test_waiting_threads_neither_sleep_at_once_nor_spin_for_long_unless_the_user_says_so(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert worker_variables("default") == {"GOMP_SPINCOUNT": "10000"}
    for name, value in (("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "5")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert worker_variables("default") == {}
