"""Lightning's trainer as NTRM uses it: devices, precision, several processes; and errors that mend."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ntrm.core.devices import choose_precision
from ntrm.core.errors import NtrmError, UsageError
from ntrm.training.engine import SLURMEnvironment, pl
from ntrm.training.launch import Launch, under_slurm
from ntrm.training.recipe import Recipe

_ACCELERATORS = {"cpu": "cpu", "cuda": "gpu", "mps": "mps"}
_PRECISIONS: dict[torch.dtype, Any] = {
    torch.float32: "32-true",
    torch.bfloat16: "bf16-mixed",
    torch.float16: "16-mixed",
}
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUDNN_STATUS_ALLOC_FAILED")


def make_trainer(
    recipe: Recipe, launch: Launch, folder: Path, callback: pl.Callback, *, start_counts: bool = False
) -> pl.Trainer:
    """A trainer that runs rounds until ``callback`` stops it, and writes, shows and restores nothing by itself.

    With ``start_counts`` it validates once before the first step.
    """
    cuda = launch.device.type == "cuda"
    settings: dict[str, Any] = {}
    if launch.world > 1:
        settings["strategy"] = pl.strategies.DDPStrategy(
            process_group_backend="nccl" if cuda else "gloo",
            gradient_as_bucket_view=True,
            **_leave_buffers_alone(),
        )
        # One batch norm over the whole batch, so that the result does not depend on how many devices share it.
        settings["sync_batchnorm"] = cuda and not recipe.freeze_batch_norm
    if under_slurm():
        # Requeueing is the job script's choice: Lightning's own would write checkpoints of another kind.
        settings["plugins"] = [SLURMEnvironment(auto_requeue=False)]
    index = launch.device.index
    return pl.Trainer(
        accelerator=_ACCELERATORS[launch.device.type],
        devices=[index] if index is not None and launch.world == 1 else launch.local_world,
        num_nodes=launch.nodes,
        precision=_precision(recipe, launch.device),
        max_epochs=-1,
        gradient_clip_val=recipe.gradient_clip,
        callbacks=[callback],
        default_root_dir=folder,
        benchmark=cuda,
        num_sanity_val_steps=-1 if start_counts else 0,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        inference_mode=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_autolog_hparams=False,
        **settings,
    )


def _leave_buffers_alone() -> dict[str, Any]:
    """Statistics of batch norm are joined once a round, before they are used: not at every step."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


def _precision(recipe: Recipe, device: torch.device) -> Any:
    kind = choose_precision(recipe.precision, device)
    if kind == torch.float16 and device.type != "cuda":
        raise UsageError(
            "float16 trains on a GPU alone", got=device, expected="cuda", mend="set precision=float32 or bfloat16"
        )
    return _PRECISIONS[kind]


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
            mend=f"lower it: --set batch={batch}, --set window={window}, --set resident=no "
            "or --set precision=bfloat16; or share the batch among more devices",
        ) from error


def ran_out_of_memory(error: Exception) -> bool:
    """Whether an error is about memory; allocators other than CUDA's have no error of their own."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(phrase in str(error) for phrase in _OUT_OF_MEMORY)
