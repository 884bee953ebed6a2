"""What a worker has to know, as it goes through its input: no secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ntrm.service.settings import ServiceLimits, ServiceSettings


def settings_to(settings: ServiceSettings) -> dict[str, Any]:
    """As a JSON document."""
    limits = {"slide_seconds": settings.limits.slide_seconds}
    plain = {"model": settings.model, "device": settings.device, "batch": settings.batch}
    return {"out": os.fsencode(settings.out.absolute()).hex(), **plain, "limits": limits}


def settings_from(document: dict[str, Any]) -> ServiceSettings:
    """The other way round."""
    out = Path(os.fsdecode(bytes.fromhex(document["out"])))
    plain = {key: document[key] for key in ("model", "device", "batch")}
    return ServiceSettings(out=out, limits=ServiceLimits(**document["limits"]), **plain)
