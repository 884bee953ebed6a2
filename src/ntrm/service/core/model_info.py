"""What is known of the model without loading it, and refusal of one that no worker could load."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, NtrmError
from ntrm.core.io import write_json
from ntrm.core.labels import RGB, LabelSchema, Tissue
from ntrm.models.config import ModelConfig
from ntrm.models.folders import local_folder, locate, read_model
from ntrm.models.names import NETWORKS
from ntrm.service.core.palette import safe_colours
from ntrm.service.core.settings import ServiceSettings

FILE = "model.json"
"""What the worker writes for the web process, in the service's own folder."""
BUNDLED = "bundled"
NOTICE = "For research, not for diagnosis."
BUNDLED_NOTICE = "The bundled model has seen synthetic sections only: for trying the software, not for real slides."


@dataclass(frozen=True)
class ModelFacts:
    """A model's name and its classes."""

    name: str
    version: str
    schema: LabelSchema
    sha256: str | None = None
    mpp: float | None = None

    @property
    def colours(self) -> list[RGB]:
        """The dataset's own."""
        return [tissue.rgb for tissue in self.schema.tissues]

    @property
    def safe_colours(self) -> list[RGB]:
        """For colour-blind readers."""
        return safe_colours(self.schema)

    def as_dict(self) -> dict[str, Any]:
        """As ``config.json`` says it."""
        tissues = [{"name": t.name, "title": t.title, "rgb": list(t.rgb)} for t in self.schema.tissues]
        about = {"name": self.name, "version": self.version, "weights_sha256": self.sha256, "mpp": self.mpp}
        return {**about, "classes": tissues, "background": self.schema.background}


def read_facts(settings: ServiceSettings) -> ModelFacts | None:
    """The model's facts; None while a model from a hub is still on its way."""
    if settings.model == BUNDLED:
        text = resources.files("ntrm.models").joinpath(BUNDLED, "config.json").read_text(encoding="utf-8")
        return understand(text)
    for path in (Path(settings.model) / "config.json", settings.hidden / FILE):
        try:
            return understand(path.read_text(encoding="utf-8"))
        except OSError:
            continue
    return None


def write_facts(settings: ServiceSettings, facts: ModelFacts) -> None:
    """For the web process."""
    write_json(settings.hidden / FILE, facts.as_dict())


def understand(text: str) -> ModelFacts:
    """A model's ``config.json``, or what ``write_facts`` wrote."""
    try:
        document = json.loads(text)
        tissues = tuple(
            Tissue(index, str(each["name"]), str(each["title"]), tuple(int(v) for v in each["rgb"]))  # type: ignore[arg-type]
            for index, each in enumerate(document["classes"])
        )
        mpp = document["mpp"]
        return ModelFacts(
            name=str(document["name"] or document.get("arch", "")),
            version=str(document["version"]),
            schema=LabelSchema(tissues, background=document["background"]),
            sha256=document["weights_sha256"],
            mpp=None if mpp is None else float(mpp),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("the model's config cannot be understood", got=type(error).__name__) from error


# Refuse a model that no worker could load, as far as its files tell, before the service has an address.


HUB_SECONDS = 20.0
"""For a hub to answer; weights that take longer are left to the worker, which tells when they do not come."""


def check_model(settings: ServiceSettings) -> None:
    """Refuse as ``ntrm segment`` does; a service without workers needs no network."""
    if settings.workers == 0:
        return
    folder = local_folder(settings.model) or _fetched(settings.model)
    if folder is not None:
        config, _ = read_model(folder)
        config.check_mpp()
        _check_architecture(config)


def _check_architecture(config: ModelConfig) -> None:
    if config.arch not in NETWORKS:  # nearly always it is, and torch, which the web process never loads, stays away
        from ntrm.models.registry import create

        options: dict[str, Any] = dict(config.options)
        create(config.arch, config.schema, **options)


def _fetched(source: str) -> Path | None:
    """Folder of a hub's model; None where that takes long. In a process, which can be ended while it waits."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_fetch, args=(source, there), daemon=True)
    process.start()
    there.close()
    try:
        answer = here.recv() if here.poll(HUB_SECONDS) else None
    except EOFError:
        answer = None
    finally:
        process.kill()
        process.join()
        here.close()
    if isinstance(answer, NtrmError):
        raise answer
    return answer if isinstance(answer, Path) else None


def _fetch(source: str, told: Connection) -> None:
    try:
        told.send(locate(source))
    except NtrmError as error:
        told.send(error)
