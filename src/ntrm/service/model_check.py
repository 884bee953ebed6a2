"""Refuse a model that no worker could load, as far as its files tell, before the service has an address."""

from __future__ import annotations

from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ntrm.errors import NtrmError
from ntrm.models.config import ModelConfig
from ntrm.models.folders import local_folder, locate, read_model
from ntrm.models.names import NETWORKS
from ntrm.service.settings import ServiceSettings

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
