from __future__ import annotations

import pytest
import torch

from bench.faults import is_out_of_memory


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("seqlen"), False),
    ],
)
def test_which_errors_are_of_memory(error, memory):
    assert is_out_of_memory(error) == memory
