"""What is known of the model without loading it, and refusal of one that no worker could load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ntrm.core.labels import RGB, LabelSchema, safe_palette
from ntrm.models.config import NETWORKS
from ntrm.models.folders import CONFIG, locate, read_config, read_model

NOTICE = "For research, not for diagnosis."
BUNDLED_NOTICE = "The bundled model has seen synthetic sections only: for trying the software, not for real slides."


@dataclass(frozen=True)
class ModelFacts:
    """A model's name and its classes."""

    name: str
    version: str
    schema: LabelSchema
    sha256: str
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


def read_facts(model: str) -> ModelFacts:
    """The facts of a model, fetched from its hub if need be."""
    config, sha256 = read_config(locate(model) / CONFIG)
    return ModelFacts(config.name or config.arch, config.version, config.schema, sha256, config.mpp)


def check_model(model: str) -> None:
    """Refuse what ``ntrm segment`` would."""
    config, _ = read_model(locate(model))
    config.check_mpp()
    if config.arch not in NETWORKS:  # rare: only then does the web process load torch
        from ntrm.models.registry import create

        options: dict[str, Any] = dict(config.options)
        create(config.arch, config.schema, **options)
