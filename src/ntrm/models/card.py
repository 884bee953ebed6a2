"""The model card that travels with the weights."""

from __future__ import annotations

from ntrm.models.config import ModelConfig
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
