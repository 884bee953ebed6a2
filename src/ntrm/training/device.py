"""The device while a network trains on it: number formats, kernels, CUDA graphs, and errors that say what to lower."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ntrm.core.devices import choose_precision, ran_out_of_memory
from ntrm.core.errors import NtrmError, UsageError
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.training.recipe import Recipe

Forward = Callable[[Tensor], Segmentation]


def training_precision(recipe: Recipe, device: torch.device) -> torch.dtype:
    """The number format in which networks run; weights and optimiser stay in float32."""
    kind = choose_precision(recipe.precision, device)
    if kind == torch.float16 and device.type != "cuda":
        raise UsageError(
            "float16 training needs a GPU", got=device, expected="cuda", hint="set precision=float32 or bfloat16"
        )
    return kind


def autocast(kind: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Let networks run in a number format; nothing changes for float32."""
    if kind == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=kind, cache_enabled=False)


@contextmanager
def tuned(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """All that is set while a network trains on ``device``, put back afterwards.

    On a GPU, cuDNN looks for its fastest kernels, and float32 matrix products take the shorter format where the
    recipe's precision is not float32. Attention stays off cuDNN's kernel, whose backward pass gives NaN on Hopper from
    torch 2.11 on where the number of keys leaves 64 when divided by 128 (pytorch issue 196678); a Mix Transformer has
    64 keys in windows of 256. Other kernels take over at the same speed.
    """
    on_gpu = device.type == "cuda"
    benchmark, attention = torch.backends.cudnn.benchmark, torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    matrices = torch.get_float32_matmul_precision()
    try:
        with torch.cuda.device(device) if on_gpu else nullcontext():
            torch.backends.cudnn.benchmark = benchmark or on_gpu
            torch.backends.cuda.enable_cudnn_sdp(False)
            if on_gpu and recipe.precision in ("auto", "bfloat16"):
                torch.set_float32_matmul_precision("high")
            yield
    except (RuntimeError, MemoryError) as error:
        if not ran_out_of_memory(error):
            raise
        batch, window = max(1, recipe.batch // 2), max(32, recipe.window // 64 * 32)
        raise NtrmError(
            f"memory of {device} ran out",
            got=f"batch {recipe.batch}, window {recipe.window}, resident {recipe.resident}, {recipe.precision}",
            hint=f"lower it: --set batch={batch}, --set window={window}, --set resident=no "
            "or --set precision=bfloat16; or divide the batch over more devices",
        ) from error
    finally:
        torch.backends.cudnn.benchmark = benchmark
        torch.backends.cuda.enable_cudnn_sdp(attention)
        if torch.get_float32_matmul_precision() != matrices:
            torch.set_float32_matmul_precision(matrices)


def recorded(network: SegmentationModel, sample: Tensor) -> Forward:
    """Forward and backward of ``network`` as CUDA graphs, for batches of the shape of ``sample``.

    At small batches a step is hundreds of small kernels, and most of the time is spent launching them one by one. A
    recording launches them at once: on an H200 a step of 4 windows takes 15 ms instead of 43, one of 32 takes 29
    instead of 47. The kernels, their order and their inputs are the same. The precision is the one set right now.
    Recording runs the network a few times; the statistics of batch norm are put back to what they were.
    """
    before = [buffer.clone() for buffer in network.buffers()]
    heads = _Heads(network)
    heads.training = network.training  # its own mode alone: frozen layers of the network stay as they are
    kind = sample.device.type
    precision, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
    # The recording's own gradients live on another stream than this step's, from its first trial run on; replaying
    # orders the two.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    # Weights that were rounded for one step must not be cached inside a recording: they change.
    with torch.autocast(kind, dtype=precision, enabled=enabled, cache_enabled=False):
        replay: Any = torch.cuda.make_graphed_callables(heads, (torch.zeros_like(sample),), allow_unused_input=True)
    with torch.no_grad():
        for buffer, value in zip(network.buffers(), before, strict=True):
            buffer.copy_(value)
    return lambda x: Segmentation(*replay(x))


class _Heads(nn.Module):
    """A network whose output is a plain tuple of tensors, which is what can be recorded."""

    def __init__(self, network: SegmentationModel) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        out: Segmentation = self.network(x)
        return (out.final,) if out.coarse is None else (out.final, out.coarse)
