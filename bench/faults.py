"""What an exception says of a case, whether the device can still be used after it, and waiting for it."""

from __future__ import annotations

from collections.abc import Callable


def recovered() -> bool:
    """After a failure on a GPU, give memory back; False if the device is broken and only a new process can go on."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True


def is_out_of_memory(error: Exception) -> bool:
    """Python's, CUDA's, or the text that torch's CPU allocator or the C++ library gives a plain RuntimeError."""
    text = str(error).lower()
    words = ("out of memory", "can't allocate memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(word in text for word in words)


def synchronizer(device: str) -> Callable[[], None]:
    """Waits until the device has done all queued work; nothing on a CPU, where a call returns when it is done."""
    if device != "cuda":
        return lambda: None
    import torch

    return torch.cuda.synchronize
