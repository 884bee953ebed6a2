"""The device while a network trains on it: number formats, kernels, and errors about memory that say what to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from ntrm.core.devices import choose_precision
from ntrm.core.errors import NtrmError, UsageError
from ntrm.training.recipe import Recipe

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUDNN_STATUS_ALLOC_FAILED")


def training_precision(recipe: Recipe, device: torch.device) -> torch.dtype:
    """The number format in which networks run; weights and optimiser stay in float32."""
    kind = choose_precision(recipe.precision, device)
    if kind == torch.float16 and device.type != "cuda":
        raise UsageError(
            "float16 trains on a GPU alone", got=device, expected="cuda", hint="set precision=float32 or bfloat16"
        )
    return kind


def autocast(kind: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Let networks run in a number format; nothing changes for float32."""
    if kind == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=kind, cache_enabled=False)


@contextmanager
def tuned(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """All that is set while a network trains on ``device``, put back afterwards."""
    before = torch.backends.cudnn.benchmark
    own = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with own, fast_matrices(recipe, device), sound_attention(), memory_explained(recipe, device):
        torch.backends.cudnn.benchmark = before or device.type == "cuda"
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = before


@contextmanager
def fast_matrices(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """Let float32 matrix products take the GPU's shorter format where the recipe's precision is not float32."""
    if device.type != "cuda" or recipe.precision not in ("auto", "bfloat16"):
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def sound_attention() -> Iterator[None]:
    """Keep attention off cuDNN's kernel, whose backward turns into no numbers on Hopper from torch 2.11 on.

    It does so where the number of keys leaves 64 when divided by 128 (pytorch issue 196678), and a Mix Transformer has
    64 keys in windows of 256. Other kernels take over at the same speed.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextmanager
def memory_explained(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """Turn an error about memory into one that says what to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not ran_out_of_memory(error):
            raise
        batch, window = max(1, recipe.batch // 2), max(32, recipe.window // 64 * 32)
        raise NtrmError(
            f"memory of {device} ran out",
            got=f"batch {recipe.batch}, window {recipe.window}, resident {recipe.resident}, {recipe.precision}",
            hint=f"lower it: --set batch={batch}, --set window={window}, --set resident=no "
            "or --set precision=bfloat16; or share the batch among more devices",
        ) from error


def ran_out_of_memory(error: Exception) -> bool:
    """Whether an error is about memory; allocators other than CUDA's have no error of their own."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(phrase in str(error) for phrase in _OUT_OF_MEMORY)
