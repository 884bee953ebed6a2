"""A model's folder without its network: where it is, its config and card, and whether they fit. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError, path_error
from ntrm.core.io import read_json, sha256_of
from ntrm.core.labels import SKIN, LabelSchema, Tissue, rgb_of
from ntrm.models.config import ModelConfig
from ntrm.version import __version__

FORMAT = "ntrm-model/1"
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
REFERENCE, REFERENCE_NUMBERS = "reference.json", "reference.safetensors"
"""What the training sections are like (``ntrm.familiarity``); a model works without."""

BUNDLED = "bundled"  # Name of the model that comes with the package: for trying the software, not for real slides

MOST_CONFIG_BYTES = 1_000_000  # A config is a page of text; anything larger is not one


def locate(source: str | Path, revision: str | None = None) -> Path:
    """Folder of a model: a local one, the bundled one, or a download from the hub (of an earlier time, without it)."""
    folder = local_folder(source)
    if folder is not None:
        return folder
    wanted = [CONFIG, WEIGHTS, CARD, REFERENCE, REFERENCE_NUMBERS]
    with from_hub(f"no folder {source} here", "check the name and the network, or give a local folder") as hub:
        return Path(hub.snapshot_download(str(source), revision=revision, allow_patterns=wanted))


@contextmanager
def from_hub(what: str, hint: str) -> Iterator[Any]:
    """The hub's client, whose errors become ours."""
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        hint = f'pip install "ntrm[hub]", or {hint}'
        raise RefusedError(f"{what}, and no hub client", got=error, hint=hint) from error
    try:
        yield huggingface_hub
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RefusedError(f"{what}, and it cannot be fetched from the hub", got=got, hint=hint) from error


def local_folder(source: str | Path) -> Path | None:
    """Folder of a model on this machine, None for a hub id; refuses what is neither."""
    if not isinstance(source, str | PathLike):
        raise UsageError("no such model", got=repr(source)[:200], expected="a folder, or a hub id owner/name")
    if str(source) == BUNDLED:
        return Path(__file__).with_name(BUNDLED)
    folder = Path(source)
    expected = f"a folder with {CONFIG} and {WEIGHTS}, or a hub id owner/name"
    if folder.is_dir():
        if not (folder / CONFIG).exists():
            there = (folder / "model" / CONFIG).exists()
            hint = f"give {folder / 'model'}" if there else "give the folder `model` of a finished run"
            raise DataError(f"{folder} holds no model", got=f"no {CONFIG}", expected=expected, hint=hint)
        return folder
    text = str(source)
    # What begins with a local folder is most likely a mistyped path, not a hub id.
    if folder.exists() or folder.parent.is_dir() or text.count("/") != 1 or text.startswith((".", "/", "~")):
        raise path_error("no such model", folder, got=text, expected=expected)
    return None


def read_model(folder: Path) -> tuple[ModelConfig, Path, str]:
    """Config of a model's folder, the file of its weights, and their SHA-256, which has been checked."""
    config, expected = read_config(folder / CONFIG)
    path = folder / WEIGHTS
    if not path.is_file():
        raise DataError("the model folder has no weights", got=folder, expected=WEIGHTS, hint="copy the whole folder")
    if (digest := sha256_of(path)) != expected:
        raise RefusedError(
            f"{path} is not the file that {CONFIG} names",
            got=f"sha256 {digest}",
            expected=f"sha256 {expected}",
            hint="copy the folder again, both files together",
        )
    return config, path, digest


def read_config(path: Path) -> tuple[ModelConfig, str]:
    """The config in a file, and the SHA-256 of the weights that it is of."""
    if path.is_file() and path.stat().st_size > MOST_CONFIG_BYTES:
        raise DataError(f"{path} is not a model config", got=f"{path.stat().st_size:,} bytes", expected="a page")
    document = read_json(path, hint="copy the model folder again")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise DataError(f"{path} is not an NTRM model config", got=f"format {found!r}", expected=f"format {FORMAT!r}")
    document.setdefault("trained_on", [])  # models did not always say it
    fields = {"format", "weights_sha256", *ModelConfig("", SKIN).as_dict()}
    if document.keys() != fields:
        got = f"missing {sorted(fields - document.keys())}, unknown {sorted(document.keys() - fields)}"
        hint = "use the ntrm version that wrote it"
        raise DataError(f"{path} has other fields than a model config", got=got, hint=hint)
    del document["format"]
    digest = str(document.pop("weights_sha256"))
    try:
        classes = enumerate(document.pop("classes"))
        tissues = tuple(Tissue(k, str(c["name"]), str(c["title"]), rgb_of(c["rgb"])) for k, c in classes)
        schema = LabelSchema(tissues, background=document.pop("background"))
        options, trained_on = dict(document.pop("options")), tuple(document.pop("trained_on"))
        if strange := sorted(options.keys() & {"name", "classes", "weights"}):
            raise UsageError("impossible options", got=strange)
        config = ModelConfig(schema=schema, options=options, trained_on=trained_on, **document)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, NtrmError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{path} cannot be understood", got=reason, hint="copy the model folder again") from error
    return config, digest


def model_card(config: ModelConfig, parameters: int, digest: str) -> str:
    """``README.md`` of a model folder."""
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
    metadata = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    classes = "\n".join(f"| {t.index} | {t.name} | {t.title} |" for t in config.schema.tissues)
    tags = ["histopathology", *(["skin"] if config.schema.names == SKIN.names else []), "segmentation"]
    return f"""---
license: {config.licence.lower()}
library_name: ntrm
pipeline_tag: image-segmentation
tags: [{", ".join(tags)}]
---
# {config.name or config.arch}
Segments H&E sections into {config.classes} classes. Research use only; not a medical device.

| | |
|---|---|
{metadata}

| index | name | tissue |
|---|---|---|
{classes}

```python
import ntrm

network = ntrm.load("this-folder")
```
"""
