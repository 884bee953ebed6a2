"""How many workers a cluster can hold, and which part of it each of them gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ntrm.errors import UsageError, check_number

THREADS = 2
"""Cores of a worker without a GPU: slides side by side use cores better than threads in one slide."""


@dataclass(frozen=True)
class Share:
    """What each worker reserves."""

    workers: int
    device: str
    cpus: int
    gpus: float


def share_out(resources: Mapping[str, float], device: str, workers: int | None) -> Share:
    """A worker on each GPU, or several where more are asked for than there are; without GPUs one for two cores.

    >>> share_out({"CPU": 32, "GPU": 4}, "auto", None)
    Share(workers=4, device='cuda', cpus=1, gpus=1.0)
    >>> share_out({"CPU": 32, "GPU": 4}, "auto", 6).gpus
    0.5
    """
    if workers is not None:
        check_number("number of workers", workers, 1, 100_000, whole=True)
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            "on a cluster no single device can be chosen", got=device, expected="auto, cpu or cuda", mend="leave it out"
        )
    gpus, cpus = int(resources.get("GPU", 0)), max(1, int(resources.get("CPU", 1)))
    if device == "cuda" and not gpus:
        raise UsageError("the cluster has no GPU", got="--device cuda", mend="take --device auto or cpu")
    if gpus and device != "cpu":
        count = workers or gpus
        # Equal parts of whole cards: seven workers on four cards are two on each card, not 1.75.
        return Share(count, "cuda", 1, 1 / math.ceil(count / gpus))
    count = workers or max(1, cpus // THREADS)
    return Share(count, "cpu", min(THREADS, max(1, cpus // count)), 0.0)
