"""Small tensors to where the images are."""

from __future__ import annotations

from torch import Tensor


def send(small: Tensor, like: Tensor) -> Tensor:
    """``small`` on the device of ``like``, without waiting for that device.

    Torch waits for all earlier work of a GPU before it copies from memory that the system may move: a training step
    whose augmentation has a dozen such copies could never be prepared while the step before is computed.
    """
    if like.device.type == "cuda" and small.device.type == "cpu":
        return small.pin_memory().to(like.device, non_blocking=True)
    return small.to(like.device)
