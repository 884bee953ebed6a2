"""What is known of the model without loading it, and refusal of one that no worker could load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.labels import RGB, LabelSchema, safe_palette
from ntrm.models.config import NETWORKS
from ntrm.models.folders import BUNDLED, CONFIG, local_folder, locate, read_config, read_model
from ntrm.service.core.settings import ServiceSettings

FILE = "model.json"  # The model's config, copied by the worker for the web process into the service's own folder
NOTICE = "For research, not for diagnosis."
BUNDLED_NOTICE = "The bundled model has seen synthetic sections only: for trying the software, not for real slides."


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
    """Fetch a hub's model, and refuse what ``ntrm segment`` would; without workers no network is needed."""
    if settings.workers == 0:
        return
    config, *_ = read_model(locate(settings.model))
    config.check_mpp()
    if config.arch not in NETWORKS:  # rare: only then does the web process load torch
        from ntrm.models.registry import create

        options: dict[str, Any] = dict(config.options)
        create(config.arch, config.schema, **options)
