"""Encoder weights from files or from a hub: tensors only, nothing in a file is ever run."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ntrm.core.errors import DataError, RefusedError, choices_error

IMAGENET_HUB = {
    "resnet18": "timm/resnet18.tv_in1k",
    "resnet34": "timm/resnet34.tv_in1k",
    "resnet50": "timm/resnet50.tv_in1k",
    "vgg16": "timm/vgg16_bn.tv_in1k",
}
"""Public ImageNet weights in torchvision's key names, by encoder."""

CLASSIFIER = ("fc.", "classifier.", "head.", "pre_logits.")
"""Parts of an ImageNet network that an encoder does not have."""


_DAMAGED = (
    OSError,
    SafetensorError,
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    # The restricted unpickler meets damage with whatever its next step runs into.
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    MemoryError,
    struct.error,
)
"""What reading a damaged or hostile file can raise."""


def weights_folder() -> Path:
    """Where weights are looked for by name: ``NTRM_WEIGHTS``, else the user's cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("NTRM_WEIGHTS") or cache / "ntrm" / "weights")


def load_encoder_weights(encoder: nn.Module, source: str | Path, name: str = "resnet18") -> Path:
    """Fill an encoder from a file, from ``imagenet`` (found by the encoder's name) or from a hub id; returns the file.

    Keys of the classifier are left aside; every other key must fit, in name and shape.
    """
    path = find_weights(str(source), name)
    state = {key: value for key, value in read_tensors(path).items() if not key.startswith(CLASSIFIER)}
    own = encoder.state_dict()
    # Counters of batch norm are missing in some public files and mean nothing for frozen statistics.
    missing = sorted(key for key in own.keys() - state.keys() if not key.endswith("num_batches_tracked"))
    extra = sorted(state.keys() - own.keys())
    wrong = sorted(key for key in own.keys() & state.keys() if own[key].shape != state[key].shape)
    if missing or extra or wrong:
        raise DataError(
            f"{path} does not fit the encoder {name}",
            got=f"missing {missing[:3]}, unknown {extra[:3]}, other shape {wrong[:3]}",
            expected="torchvision's key names and full width",
            hint=f"fetch the weights of {name} ({IMAGENET_HUB.get(name, 'see the docs')})",
        )
    broken = sorted(key for key, value in state.items() if not torch.isfinite(value).all())
    if broken:
        raise DataError(f"{path} holds weights that are no numbers", got=broken[:3], hint="fetch the file again")
    encoder.load_state_dict(state, strict=False)
    return path


def find_weights(source: str, name: str) -> Path:
    """A file as it is given, the file of that name in the weights folder, or a download from the hub."""
    if source != "imagenet" and Path(source).is_file():
        return Path(source)
    if source.endswith((".safetensors", ".pth", ".pt")):
        raise DataError("no such weights file", got=source, hint="check the path")
    if source == "imagenet":
        if name not in IMAGENET_HUB:
            raise choices_error("no ImageNet weights are known for this encoder", name, IMAGENET_HUB)
        found = sorted(
            path for suffix in ("safetensors", "pth") for path in weights_folder().glob(f"{name}[-._]*{suffix}")
        )
        if found:
            return found[0]
    return _fetch(IMAGENET_HUB[name] if source == "imagenet" else source, name)


def _fetch(hub_id: str, name: str) -> Path:
    by_hand = (
        f"fetch model.safetensors of {hub_id} on a machine with network, "
        f"save it as {weights_folder() / f'{name}-imagenet.safetensors'}, or give its path"
    )
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise RefusedError(f"no file {hub_id}, and no hub client", got=error, hint=by_hand) from error
    try:
        return Path(hf_hub_download(hub_id, "model.safetensors"))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise RefusedError(
            f"cannot find the weights {hub_id}", got=f"{type(error).__name__}: {error}".splitlines()[0], hint=by_hand
        ) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, or of a pickle read with ``weights_only=True`` and in no other way."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGED as error:
        raise DataError(
            f"cannot read weights from {path}",
            got=str(error).splitlines()[0] if str(error) else type(error).__name__,
            expected="safetensors, or a state dict of tensors saved by torch",
            hint="fetch the file again; a file that wants to run code is refused",
        ) from error
    names = isinstance(state, dict) and all(isinstance(key, str) for key in state)
    if not names or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(f"{path} holds no state dict", got=type(state).__name__, expected="names and tensors")
    return dict(state)
