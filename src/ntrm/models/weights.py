"""Encoder weights from files or from a hub: tensors only, nothing in a file is ever run."""

from __future__ import annotations

import hashlib
import os
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from ntrm.core.errors import DataError, UsageError, choices_error, path_error
from ntrm.models.folders import from_hub

IMAGENET_HUB = {
    "resnet18": "timm/resnet18.tv_in1k",
    "resnet34": "timm/resnet34.tv_in1k",
    "resnet50": "timm/resnet50.tv_in1k",
    "vgg16": "timm/vgg16_bn.tv_in1k",
}
"""Public ImageNet weights in torchvision's key names, by encoder."""

STORED = (torch.float32, torch.float16, torch.bfloat16)  # Kinds of numbers in which weights are saved and loaded

DAMAGED = (
    *(OSError, SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError),
    # The restricted unpickler meets damage with whatever its next step runs into.
    *(LookupError, TypeError, AttributeError, AssertionError, MemoryError, struct.error),
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
    classifier = ("fc.", "classifier.", "head.", "pre_logits.")
    state = {key: value for key, value in read_tensors(path).items() if not key.startswith(classifier)}
    # Counters of batch norm are missing in some public files and mean nothing for frozen statistics.
    every, counter = encoder.state_dict(), "num_batches_tracked"
    own = {key: value for key, value in every.items() if key in state or not key.endswith(counter)}
    check_tensors(
        path,
        state,
        own,
        fits=f"the encoder {name}",
        expected="torchvision's key names and full width",
        hint=f"fetch the weights of {name} ({IMAGENET_HUB.get(name, 'see the docs')})",
    )
    encoder.load_state_dict(state, strict=False)
    return path


def check_tensors(
    path: Path | str, state: Mapping[str, Tensor], own: Mapping[str, Tensor], *, fits: str, expected: str, hint: str
) -> None:
    """Refuse a file whose tensors ``state`` are not finite, or not by name, shape and kind those of the network."""
    missing, extra = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    shared = [(key, own[key], state[key]) for key in sorted(own.keys() & state.keys())]
    wrong = [f"{key} {tuple(value.shape)}" for key, ours, value in shared if ours.shape != value.shape]
    kinds = {torch.float32: STORED}
    wrong += [f"{key} {v.dtype}" for key, ours, v in shared if v.dtype not in kinds.get(ours.dtype, (ours.dtype,))]
    if missing or extra or wrong:
        got = f"missing {missing[:3]}, unknown {extra[:3]}, other shape or kind {wrong[:3]}"
        raise DataError(f"{path} does not fit {fits}", got=got, expected=expected, hint=hint)
    if broken := not_finite(state):
        raise DataError(f"{path} holds weights that are no numbers", got=broken[:3], hint="fetch or train it again")


def not_finite(state: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold infinities or NaN."""
    return sorted(key for key, value in state.items() if not torch.isfinite(value).all())


def stored_state(network: nn.Module, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Tensors of a network as they are saved: on the CPU, numbers with a fraction in ``dtype``."""
    if dtype not in STORED:
        expected = f"one of {', '.join(map(str, STORED))}"
        raise UsageError("weights cannot be saved in this kind of number", got=dtype, expected=expected)
    state = {key: value.detach().cpu().contiguous() for key, value in network.state_dict().items()}
    return {key: value.to(dtype) if value.is_floating_point() else value for key, value in state.items()}


def weights_digest(network: nn.Module) -> str:
    """The identity of a model: SHA-256 of the file that its weights were loaded from, in whatever kind of number.

    Weights that are no longer those of a file have that of the one that ``save_pretrained`` would write in float32.
    """
    own = float32_digest(network)
    loaded, file = getattr(network, "loaded_weights", ("", ""))
    return str(file) if loaded == own else own


def float32_digest(network: nn.Module) -> str:
    """SHA-256 of the file that ``save_pretrained`` would write in float32."""
    return hashlib.sha256(save(stored_state(network))).hexdigest()


def find_weights(source: str, name: str) -> Path:
    """A file as it is given, the file of that name in the weights folder, or a download from the hub."""
    hub_id = source
    if source == "imagenet":
        if name not in IMAGENET_HUB:
            raise choices_error("no ImageNet weights are known for this encoder", name, IMAGENET_HUB)
        if stored := stored_weights(name):
            return stored
        hub_id = IMAGENET_HUB[name]
    elif Path(source).is_file():
        return Path(source)
    elif source.count("/") != 1 or source[0] in "./~" or source.endswith((".safetensors", ".pth", ".pt")):
        raise path_error("no such weights file", source, got=source, expected="a file, imagenet or a hub id owner/name")
    file = weights_folder() / f"{name}-imagenet.safetensors"
    by_hand = f"fetch model.safetensors of {hub_id} on a machine with network, save it as {file}, or give its path"
    with from_hub(f"no file {hub_id} here", by_hand) as hub:
        return Path(hub.hf_hub_download(hub_id, "model.safetensors"))


def stored_weights(name: str) -> Path | None:
    """The file of the weights folder that ``imagenet`` means, or None.

    A file called like the public weights comes first: beside ``vgg16_bn-…`` there may be a ``vgg16-…`` without norms.
    """
    public = IMAGENET_HUB[name].split("/")[1].split(".")[0]
    files = [path for kind in ("safetensors", "pth") for path in weights_folder().glob(f"{name}[-._]*{kind}")]
    return min(files, key=lambda path: (not path.name.startswith((public, f"{name}-imagenet")), path), default=None)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, or of a pickle read with ``weights_only=True`` and in no other way."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGED as error:
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
