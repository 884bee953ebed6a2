"""What goes between a reading process and its parent, as plain JSON and checked on arrival."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.mpp import Resolution
from ntrm.wsi.readers.reader import SlideInfo, SlideLevel

_KINDS: dict[str, type[NtrmError]] = {kind.__name__: kind for kind in (DataError, RefusedError, UsageError)}


def describe(thing: SlideInfo | NtrmError) -> dict[str, Any]:
    """An object as a JSON document."""
    if isinstance(thing, SlideInfo):
        return asdict(thing)
    kind = type(thing).__name__ if type(thing).__name__ in _KINDS else "DataError"
    texts = {"what": thing.what, "hint": thing.hint}
    return {"kind": kind, **texts, "got": _text(thing.got), "expected": _text(thing.expected)}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def rebuild_info(document: dict[str, Any]) -> SlideInfo:
    """What ``describe`` made of a ``SlideInfo``."""
    resolution, bounds, stated = document["resolution"], document["bounds"], document["stated_mpp"]
    return SlideInfo(
        reader=str(document["reader"]),
        width=document["width"],
        height=document["height"],
        resolution=None if resolution is None else Resolution(float(resolution["x"]), float(resolution["y"])),
        levels=tuple(_level(level) for level in document["levels"]),
        bounds=None if bounds is None else tuple(int(value) for value in bounds),  # type: ignore[arg-type]
        vendor=str(document["vendor"]),
        stated_mpp=None if stated is None else (float(stated[0]), float(stated[1])),
    )


def _level(document: dict[str, Any]) -> SlideLevel:
    tile = document["tile"]
    return SlideLevel(
        document["width"],
        document["height"],
        float(document["downsample"]),
        None if tile is None else (int(tile[0]), int(tile[1])),
    )


def rebuild_error(document: dict[str, Any]) -> NtrmError:
    """What ``describe`` made of an error."""
    kind = _KINDS.get(str(document.get("kind")), DataError)
    return kind(
        str(document.get("what")),
        got=document.get("got"),
        expected=document.get("expected"),
        hint=str(document.get("hint") or ""),
    )
