"""Values of JSON as the types of fields: what a document says, or an error of its own kind."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

DAMAGES = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What reading a document of other content raises."""

_hints = functools.cache(get_type_hints)


def read_as(kind: Any, value: Any) -> Any:
    """A value of JSON as ``kind``: the type of a field, or a dataclass whose fields are the keys of an object.

    >>> from ntrm.results.documents import Cancer
    >>> read_as(Cancer, {"present": True, "confidence": 1, "area_mm2": 0.5, "regions": 2, "reason": ""})
    Cancer(present=True, confidence=1.0, area_mm2=0.5, regions=2, reason='')
    """
    if hasattr(kind, "__dataclass_fields__"):
        return kind(**{name: read_as(inner, value[name]) for name, inner in _hints(kind).items()})
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer is UnionType:
        as_it_is = (value is None or isinstance(value, bool)) and type(value) in inner
        return value if as_it_is else read_as(inner[0], value)
    if outer is float:
        return number(value)
    if type(value) is not {tuple: list, Mapping: dict}.get(outer, outer):
        raise TypeError(f"{str(value)[:60]!r} is no {outer.__name__}")
    if outer is Mapping:
        return {name: read_as(inner[1], each) for name, each in value.items()}
    if outer is not tuple:
        return value
    kinds = inner[:1] * len(value) if inner[-1] is ... else inner
    return tuple(read_as(each, item) for each, item in zip(kinds, value, strict=True))


def number(value: Any) -> float:
    """A finite number of JSON, whole or not; a ``ValueError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        not_a_number(repr(value))
    return float(value)


def not_a_number(text: object) -> NoReturn:
    """Refuse NaN and infinities, which some programs write into JSON."""
    raise ValueError(f"{text} is no number")
