"""Opening NVML, finding a CUDA device in it, and giving up with a reason: against a fake, a stub library and none."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from fake_nvml import FakeBoard, FakeNvml, fake_cuda, nvml_stub, with_library

from bench import nvml
from bench.errors import Unavailable
from bench.nvml import Identity, cuda_identity, find_board, list_boards, visible_boards

__all__ = ["nvml_stub"]

SMALL, BIG = FakeBoard("GPU-aaaa0000-0000", bus=0x17), FakeBoard("GPU-aabb0000-0000", bus=0x65)
LIBRARY = FakeNvml(SMALL, BIG)


def test_a_device_is_found_by_uuid_however_cuda_counts():
    (identity,) = cuda_identity("cuda", fake_cuda(BIG, SMALL))
    assert find_board(LIBRARY, identity).uuid == BIG.uuid


def test_a_device_without_uuid_is_found_by_its_pci_address():
    (identity,) = cuda_identity("cuda", fake_cuda(BIG, SMALL, uuid=False))
    assert identity.uuid is None
    assert find_board(LIBRARY, identity).uuid == BIG.uuid


@pytest.mark.parametrize("identity", [Identity(None), Identity("cccc"), Identity("cccc", (0, 0x66, 0)), Identity("")])
def test_a_device_that_matches_nothing_is_unknown_and_never_board_0(identity):
    with pytest.raises(Unavailable, match="GPU-aaaa0000"):
        find_board(LIBRARY, identity)


def test_an_old_torch_that_tells_no_address_is_unknown():
    cuda = SimpleNamespace(get_device_properties=lambda index: SimpleNamespace(), current_device=lambda: 0)
    assert cuda_identity("cuda", cuda) == (Identity(None),)


def test_a_cpu_has_no_gpu_and_a_missing_gpu_has_no_identity():
    assert cuda_identity("cpu") == ()
    assert cuda_identity("cuda", fake_cuda()) == (Identity(None),)


def split_board():
    instance = FakeBoard("MIG-1234")
    return FakeBoard("GPU-5678", bus=0x17, mig=1, instances=(instance,)), instance


def test_a_mig_instance_is_found_and_never_taken_for_its_board():
    board, instance = split_board()
    library = FakeNvml(board)
    (identity,) = cuda_identity("cuda", fake_cuda(instance))
    assert find_board(library, identity).instance
    for other in (Identity("5678"), Identity("9999", (0, 0x17, 0))):
        with pytest.raises(Unavailable):
            find_board(library, other)


def test_a_lost_board_costs_no_other():
    lost = FakeBoard("GPU-0", failing={"nvmlDeviceGetUUID": 15})
    boards, reasons = list_boards(FakeNvml(lost, BIG))
    assert [board.uuid for board in boards] == [BIG.uuid]
    assert reasons == ["NVML: 15"]


@pytest.mark.parametrize(
    ("variable", "order", "expected"),
    [
        (None, "PCI_BUS_ID", ["aaaa", "aabb", "cccc"]),
        (None, None, None),
        ("1,0", "PCI_BUS_ID", ["aabb", "aaaa"]),
        ("1,0", None, None),
        ("1,0", "FASTEST_FIRST", None),
        ("GPU-cccc", None, ["cccc"]),
        ("GPU-aabb,GPU-aaaa", None, ["aabb", "aaaa"]),
        ("GPU-aa", None, []),
        ("GPU-", None, []),
        ("", None, []),
        ("-1", "PCI_BUS_ID", []),
        ("0,-1,1", "PCI_BUS_ID", ["aaaa"]),
        ("0,9,1", "PCI_BUS_ID", ["aaaa"]),
        ("0,0", "PCI_BUS_ID", []),
        ("GPU-aaaa,GPU-aaaa0000", None, []),
        ("nonsense", None, []),
        ("MIG-1234", None, []),
    ],
)
def test_what_the_variable_shows(variable, order, expected):
    boards, _ = list_boards(FakeNvml(SMALL, BIG, FakeBoard("GPU-cccc0000-0000", bus=0x99)))
    shown = visible_boards(variable, order, boards)
    assert (None if shown is None else [board.uuid[4:8] for board in shown]) == expected


def test_the_variable_may_name_a_mig_instance():
    board, instance = split_board()
    boards, _ = list_boards(FakeNvml(board))
    assert [b.uuid for b in visible_boards("MIG-12", None, boards)] == [instance.uuid]


def test_the_only_board_needs_no_order():
    boards, _ = list_boards(FakeNvml(BIG))
    assert visible_boards("0", None, boards) == boards == visible_boards(None, None, boards)


def test_the_old_package_of_the_same_name_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(__path__=["pynvml"], __file__="pynvml/__init__.py"))
    with pytest.raises(Unavailable, match=r"old package pynvml .*pip uninstall pynvml"):
        nvml.open_library()


def test_bindings_that_are_not_installed_are_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unavailable, match="nvidia-ml-py is not installed"):
        nvml.open_library()


def test_the_real_bindings_are_nvidias():
    import pynvml

    assert not hasattr(pynvml, "__path__")


def test_a_session_gives_back_what_it_took_even_after_an_error():
    library = FakeNvml(BIG)
    with pytest.raises(ZeroDivisionError), nvml.session(library) as opened:
        assert opened.open == 1
        raise ZeroDivisionError
    assert library.open == 0


def test_either_name_of_a_function_is_taken_and_the_first_error_is_told():
    board = FakeBoard("GPU-1", failing={"nvmlDeviceGetTemperatureV": 3})
    library = FakeNvml(board)
    library.nvmlOldName = lambda handle: 42
    assert nvml.call_either(library, ("nvmlNoSuchName", "nvmlOldName"), board) == 42
    with pytest.raises(library.NVMLError, match="Not Supported"):
        nvml.call_either(library, ("nvmlDeviceGetTemperatureV", "nvmlNoSuchName"), board, 0)


SCRIPT = """
import json, sys
from bench import nvml
from bench.errors import Unavailable
try:
    with nvml.session() as library:
        boards, reasons = nvml.list_boards(library)
        print(json.dumps([[b.uuid, b.pci, b.split, b.instance] for b in boards]))
except Unavailable as error:
    print(json.dumps(str(error)))
"""
FIRST, SECOND = (f"GPU-{c * 8}-{c * 4}-{c * 4}-{c * 4}-{c * 12}" for c in "12")


def test_the_real_bindings_list_the_boards_of_a_compiled_library(nvml_stub):
    assert with_library(nvml_stub, SCRIPT) == [
        [FIRST, [0, 0x17, 0], False, False],
        [SECOND, [0, 0x65, 0], False, False],
    ]


def test_the_real_bindings_find_mig_instances(nvml_stub):
    boards = with_library(nvml_stub, SCRIPT, STUB_MIG="1")
    assert [(uuid[:5], split, instance) for uuid, _, split, instance in boards] == [
        ("GPU-1", True, False),
        ("MIG-3", True, True),
        ("GPU-2", False, False),
    ]


@pytest.mark.parametrize(("code", "message"), [(18, "version mismatch"), (9, "Driver Not Loaded"), (4, "Permissions")])
def test_the_real_bindings_say_why_nvml_cannot_start(nvml_stub, code, message):
    assert message in with_library(nvml_stub, SCRIPT, STUB_FAIL=f"nvmlInitWithFlags={code}")


def test_the_real_bindings_without_a_library(tmp_path):
    """A file that is no library stands first on the loader's path, so this holds on machines with a driver too."""
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    assert with_library(tmp_path, SCRIPT) == "NVML: NVML Shared Library Not Found"
