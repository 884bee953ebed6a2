"""Device, precision and memory layout of networks: by name, or by what the machine has."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import AbstractContextManager, nullcontext, suppress

import torch

from ntrm.core.errors import UsageError, choices_error

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(device: str | torch.device) -> torch.device:
    """Device by name, or as torch has it; ``auto`` is the fastest one present, ``gpu`` another name of ``cuda``.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    # Tensors on Apple's GPU say that they are on mps:0.
    name = re.sub(r"^(cpu|mps):0$", r"\1", re.sub(r"^gpu\b", "cuda", str(device)))
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    present = ["cuda"] * bool(cards) + ["mps"] * torch.backends.mps.is_available() + ["cpu"]
    if name == "auto":
        return torch.device(present[0])
    present += [f"cuda:{index}" for index in range(cards)]
    if name in present:
        return torch.device(name)
    if not re.fullmatch(r"cuda(:\d+)?|mps", name):
        raise choices_error("unknown device", name, ["auto", "cpu", "cuda", "cuda:N", "mps"])
    raise UsageError(
        "this machine has no such device, or torch cannot use it",
        got=name,
        expected=f"one of auto, {', '.join(present)}",
        hint="`ntrm doctor` lists what torch sees here",
    )


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Number format by name; ``auto`` is what the device is good at.

    A processor without bfloat16 arithmetic emulates it some fifty times slower: there, float32 is taken instead.

    >>> choose_precision("auto", torch.device("cpu"))
    torch.float32
    """
    if name == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if name not in PRECISIONS:
        raise choices_error("unknown precision", name, ["auto", *PRECISIONS])
    return torch.float32 if name == "bfloat16" and device.type == "cpu" and not cpu_has_bfloat16() else PRECISIONS[name]


def cpu_has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16 by itself."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 - torch has no public name for it


def full_precision_on_cpu(device: torch.device) -> AbstractContextManager[None]:
    """Run matrix products on a CPU in float32, also under autocast.

    On a CPU without bfloat16, torch would warn at the first one and switch oneDNN off for the rest of the process.
    """
    return torch.autocast("cpu", enabled=False) if device.type == "cpu" else nullcontext()


def choose_layout(device: torch.device) -> torch.memory_format:
    """Memory layout of images and weights: convolutions are fastest with channels last, but not on Apple's GPUs.

    >>> choose_layout(torch.device("cpu"))
    torch.channels_last
    """
    return torch.contiguous_format if device.type == "mps" else torch.channels_last


def keep_freed_memory(device: torch.device) -> None:
    """Let glibc keep up to a gigabyte that networks free on a processor, unless the user has set its thresholds.

    A network frees hundreds of megabytes with every batch and wants them again at once. Given back to the system, each
    page has to be cleared for it anew, which takes a third of the time of inference. Other allocators are left alone.
    """
    variables = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
    if device.type == "cpu" and not any(name in os.environ for name in variables):
        with suppress(OSError, AttributeError):
            for threshold in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
                ctypes.CDLL(None).mallopt(threshold, 1 << 30)


def ran_out_of_memory(error: Exception) -> bool:
    """Whether an error is about memory: allocators other than CUDA's have no error of their own for it."""
    phrases = ("out of memory", "can't allocate memory", "not enough memory", "CUDNN_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(text in str(error) for text in phrases)


def give_back_freed_memory() -> None:
    """Return freed memory to the system, for other work that needs much of it; does nothing without glibc."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
