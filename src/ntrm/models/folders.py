"""A model's folder without its network: where it lies, and whether its files belong together. Needs no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.io import sha256_of
from ntrm.core.labels import LabelSchema, Tissue
from ntrm.models.config import ModelConfig
from ntrm.models.names import network_saved_as

FORMAT = "ntrm-model/1"
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"

BUNDLED = "bundled"
"""Name of the model that comes with the package: for trying the software, not for real slides."""

SILENCE_S = 20.0
"""How long a hub may say nothing at all: its own client would wait for ever."""

MOST_CONFIG_BYTES = 1_000_000
"""A config is a page of text; anything larger is not one."""

_KEYS = {
    "format", "arch", "options", "classes", "background", "mpp", "window", "mean", "std", "temperature", "name",
    "version", "licence", "data", "weights_sha256",
}  # fmt: skip


def locate(source: str | Path, revision: str | None = None) -> Path:
    """Folder of a model: as it is given, the bundled one, or a download from the hub.

    Where the hub is silent, what was fetched before is taken, as where there is no network.
    """
    folder = local_folder(source)
    if folder is not None:
        return folder
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    # Some put a password into the address: it has no place in a message, and any answer will do.
    scheme, colon, rest = constants.ENDPOINT.partition("://")
    endpoint = scheme + colon + rest.rpartition("@")[2]
    silent = not constants.HF_HUB_OFFLINE and _is_silent(endpoint, str(source))
    only: dict[str, Any] = {"local_files_only": True} if silent else {}
    try:
        return Path(snapshot_download(str(source), revision=revision, allow_patterns=[CONFIG, WEIGHTS, CARD], **only))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        if silent:
            raise RefusedError(
                f"no folder {source} here, and the hub does not answer",
                got=f"nothing from {endpoint} in {SILENCE_S:g} s, and no copy of an earlier download",
                expected="an answer, however slow the download is then",
                hint="check HF_ENDPOINT, the proxy and the network, try again later, or give a local folder",
            ) from error
        raise RefusedError(
            f"no folder {source} here, and it cannot be fetched from the hub",
            got=f"{type(error).__name__}: {error}".splitlines()[0],
            hint="check the name and the network, or give a local folder",
        ) from error


def local_folder(source: str | Path) -> Path | None:
    """Folder of a model on this machine, None for a hub id; refuses what is neither, and a hub without its client."""
    if str(source) == BUNDLED:
        return Path(__file__).with_name(BUNDLED)
    folder = Path(source)
    if folder.is_dir():
        return _model_folder(folder)
    text = str(source)
    local = text.count("/") == 1 and folder.parent.is_dir()
    if local or folder.exists() or text.count("/") != 1 or text.startswith((".", "/", "~")):
        # What begins with a folder of this machine is most likely a path with a mistake in it, and nothing to ask for.
        hint = f"look into {folder.parent}; a hub id is taken for one where no folder has its first name"
        raise DataError(
            "no such model",
            got=text,
            expected=f"a folder with {CONFIG} and {WEIGHTS}, or a hub id owner/name",
            hint=hint if local else "",
        )
    if find_spec("huggingface_hub") is None:
        raise RefusedError(
            f"no folder {text}, and no hub client", got="no huggingface_hub", hint='pip install "ntrm[hub]"'
        )
    return None


def _is_silent(endpoint: str, name: str) -> bool:
    """Whether a hub takes connections, or seems to, and says nothing."""
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    if not endpoint.startswith(("http://", "https://")):
        return False
    try:
        with urlopen(Request(f"{endpoint}/api/models/{name}", method="HEAD"), timeout=SILENCE_S):  # noqa: S310
            return False
    except (OSError, HTTPException, ValueError) as error:
        # A refusal is an answer, and what else is wrong the client tells better.
        return isinstance(getattr(error, "reason", error), TimeoutError)


def read_model(folder: Path) -> tuple[ModelConfig, Path]:
    """What a model's folder says of it, and its weights, if they are those that it names."""
    document = _read_config(folder / CONFIG)
    config = _understand(document, folder / CONFIG)
    path = folder / WEIGHTS
    if not path.is_file():
        raise DataError("the model folder has no weights", got=folder, expected=WEIGHTS, hint="copy the whole folder")
    if sha256_of(path) != document["weights_sha256"]:
        raise RefusedError(
            f"{path} is not the file that {CONFIG} names",
            got=f"sha256 {sha256_of(path)}",
            expected=f"sha256 {document['weights_sha256']}",
            hint="copy the folder again, both files together",
        )
    return config, path


def _model_folder(folder: Path) -> Path:
    if (folder / CONFIG).exists():
        return folder
    inside = folder / "model"
    raise DataError(
        f"{folder} holds no model",
        got=f"no {CONFIG}",
        expected=f"a folder with {CONFIG} and {WEIGHTS}",
        hint=f"give {inside}" if (inside / CONFIG).exists() else "give the folder `model` of a finished run",
    )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_CONFIG_BYTES:
            raise DataError(f"{path} is no model config", got=f"{path.stat().st_size:,} bytes", expected="a page")
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}", got=error, hint="copy the model folder again") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise DataError(f"{path} is no NTRM model config", got=f"format {found!r}", expected=f"format {FORMAT!r}")
    if document.keys() != _KEYS:
        raise DataError(
            f"{path} has other fields than a model config",
            got=f"missing {sorted(_KEYS - document.keys())}, unknown {sorted(document.keys() - _KEYS)}",
            hint="use the ntrm version that wrote it",
        )
    return document


def _understand(document: Mapping[str, Any], path: Path) -> ModelConfig:
    try:
        tissues = tuple(
            Tissue(k, str(c["name"]), str(c["title"]), (int(c["rgb"][0]), int(c["rgb"][1]), int(c["rgb"][2])))
            for k, c in enumerate(document["classes"])
        )
        options = dict(document["options"])
        strange = [key for key, value in options.items() if not isinstance(value, str | int | float | bool | None)]
        strange += sorted(options.keys() & {"name", "classes", "weights"})
        numbers = [*document["mean"], *document["std"], document["temperature"]]
        lengths = len(document["mean"]), len(document["std"])
        if strange or lengths != (3, 3) or not all(math.isfinite(float(number)) for number in numbers):
            raise UsageError("impossible values", got=strange or numbers)
        return ModelConfig(
            arch=network_saved_as(str(document["arch"])),
            schema=LabelSchema(tissues, background=document["background"]),
            options=options,
            mpp=None if document["mpp"] is None else float(document["mpp"]),
            window=int(document["window"]),
            mean=tuple(float(v) for v in document["mean"]),  # type: ignore[arg-type]
            std=tuple(float(v) for v in document["std"]),  # type: ignore[arg-type]
            temperature=float(document["temperature"]),
            name=str(document["name"]),
            version=str(document["version"]),
            licence=str(document["licence"]),
            data=str(document["data"]),
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, NtrmError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{path} cannot be understood", got=reason, hint="copy the model folder again") from error
