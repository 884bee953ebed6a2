"""A network as a folder: ``config.json``, ``model.safetensors`` and ``README.md``, the model card."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ntrm.core.errors import RefusedError
from ntrm.core.io import sha256_of, whole_file, write_json, write_text
from ntrm.models.config import ModelConfig
from ntrm.models.folders import CARD, CONFIG, FORMAT, WEIGHTS
from ntrm.version import __version__


def model_card(config: ModelConfig, parameters: int, digest: str, notes: str = "") -> str:
    """``README.md`` of a model folder: what it is, what it expects, what it was made from, what it is not for.

    ``notes`` is Markdown of whoever made the model: what it scored, what it is meant for.
    """
    options = ", ".join(f"{key} {value}" for key, value in config.options.items()) or "defaults"
    rows = {
        "architecture": f"{config.arch} ({options})",
        "parameters": f"{parameters / 1e6:.2f} million",
        "resolution": "not trained yet" if config.mpp is None else f"{config.mpp:g} µm/px",
        "window": f"{config.window} × {config.window} pixels",
        "temperature": f"{config.temperature:g}",
        "training data": config.data or "not stated",
        "model version": config.version or "not stated",
        "weights (SHA-256)": digest,
        "written by": f"ntrm {__version__}",
    }
    facts = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    classes = "\n".join(f"| {t.index} | {t.name} | {t.title} |" for t in config.schema.tissues)
    return f"""---
license: {config.licence.lower()}
library_name: ntrm
pipeline_tag: image-segmentation
tags: [histopathology, skin, segmentation]
---
# {config.name or config.arch}
Segments H&E sections into {config.classes} classes. Research use only; not a medical device.

| | |
|---|---|
{facts}

| index | name | tissue |
|---|---|---|
{classes}

```python
import ntrm

network = ntrm.load("this-folder")
```
""" + (f"\n{notes.strip()}\n" if notes else "")


# A network as a folder: ``config.json``, ``model.safetensors``, ``README.md``.


__all__ = ["CARD", "CONFIG", "WEIGHTS", "write_model"]


def write_model(
    network: nn.Module, config: ModelConfig, folder: Path, dtype: torch.dtype = torch.float32, notes: str = ""
) -> str:
    """Write a network as a folder that loads anywhere; returns the SHA-256 of its weights.

    ``dtype=torch.float16`` halves the file and rounds the weights; float32 keeps every bit. ``notes`` go into the
    model card.
    """
    folder = Path(folder)
    state = {key: _stored(value, dtype) for key, value in network.state_dict().items()}
    broken = sorted(key for key, value in state.items() if not torch.isfinite(value).all())
    if broken:
        raise RefusedError("the network holds weights that are no numbers", got=broken[:3], hint="train it again")
    with whole_file(folder / WEIGHTS) as partial:
        save_file(state, partial)
    digest = sha256_of(folder / WEIGHTS)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    write_text(folder / CARD, model_card(config, parameters, digest, notes))
    # The config comes last and names the weights: a folder that was half replaced does not load.
    write_json(folder / CONFIG, {"format": FORMAT, **config.as_dict(), "weights_sha256": digest})
    return digest


def _stored(value: Tensor, dtype: torch.dtype) -> Tensor:
    value = value.detach().cpu().contiguous()
    return value.to(dtype) if value.is_floating_point() else value
