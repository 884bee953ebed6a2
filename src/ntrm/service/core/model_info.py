"""What is known of the model without loading it, and refusal of one that no worker could load."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.labels import RGB, LabelSchema, safe_palette
from ntrm.models.folders import BUNDLED, CONFIG, local_folder, locate, read_config, read_model
from ntrm.models.names import NETWORKS
from ntrm.service.core.settings import ServiceSettings

FILE = "model.json"
"""The model's config, copied by the worker for the web process into the service's own folder."""
NOTICE = "For research, not for diagnosis."
BUNDLED_NOTICE = "The bundled model has seen synthetic sections only: for trying the software, not for real slides."
HUB_SECONDS = 20.0
"""For a hub to answer. Weights that take longer are left to the worker, which reports a failed download."""


@dataclass(frozen=True)
class ModelFacts:
    """A model's name and its classes."""

    name: str
    version: str
    schema: LabelSchema
    sha256: str | None
    mpp: float | None

    @property
    def colours(self) -> list[RGB]:
        """Colours of the dataset."""
        return [tissue.rgb for tissue in self.schema.tissues]

    @property
    def safe_colours(self) -> list[RGB]:
        """Colours that colour-blind readers can tell apart; shades of grey where there are too many classes."""
        palette = safe_palette(self.schema)
        step = 255 / max(len(self.schema) - 1, 1)
        return [(round(step * k),) * 3 for k in range(len(self.schema))] if palette is None else list(palette)


def read_facts(settings: ServiceSettings) -> ModelFacts | None:
    """The model's facts; None while a model from a hub is still being fetched."""
    folder = local_folder(BUNDLED) if settings.model == BUNDLED else None
    for path in ((folder or Path(settings.model)) / CONFIG, settings.hidden / FILE):
        if path.is_file():
            config, sha256 = read_config(path)
            return ModelFacts(config.name or config.arch, config.version, config.schema, sha256, config.mpp)
    return None


def check_model(settings: ServiceSettings) -> None:
    """Refuse, before the service has an address, what ``ntrm segment`` would; without workers no network is needed."""
    if settings.workers == 0:
        return
    folder = local_folder(settings.model) or _fetch_in_time(settings.model)
    if folder is not None:
        config, _ = read_model(folder)
        config.check_mpp()
        if config.arch not in NETWORKS:  # rare: only then does the web process load torch
            from ntrm.models.registry import create

            options: dict[str, Any] = dict(config.options)
            create(config.arch, config.schema, **options)


def _fetch_in_time(source: str) -> Path | None:
    """Folder of a hub's model; None where that takes long. In a process, which is killed at the end of the block."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply_async(locate, (source,)).get(HUB_SECONDS)
        except multiprocessing.TimeoutError:
            return None
