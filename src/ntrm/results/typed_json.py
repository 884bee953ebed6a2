"""Values of JSON as the types of fields: what a document says, or an error of its own kind."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

DAMAGES = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What reading a document of other content raises."""

Document = dict[str, Any]
Read = Callable[[Any], Any]


def read_as(kind: Any, value: Any) -> Any:
    """A value of JSON as ``kind``: the type of a field, or a dataclass whose fields are the keys of an object.

    >>> from ntrm.results.documents import Cancer
    >>> read_as(Cancer, {"present": True, "confidence": 1, "area_mm2": 0.5, "regions": 2, "reason": ""})
    Cancer(present=True, confidence=1.0, area_mm2=0.5, regions=2, reason='')
    """
    return _reader(kind)(value)


def _reader(kind: Any) -> Read:
    """A function that reads values as ``kind``: a document has thousands of values and few kinds."""
    if hasattr(kind, "__dataclass_fields__"):
        return lambda value: kind(**{name: read(value[name]) for name, read in _fields(kind).items()})
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer is UnionType:
        return _either(inner)
    if outer is float:
        return number
    if outer is Mapping:
        each = _reader(inner[1])
        return lambda value: {name: each(item) for name, item in _checked(value, dict, outer).items()}
    if outer is tuple:
        return _several(inner)
    return lambda value: _checked(value, outer, outer)


@functools.cache
def _fields(kind: Any) -> dict[str, Read]:
    return {name: _reader(inner) for name, inner in get_type_hints(kind).items()}


def _either(kinds: tuple[Any, ...]) -> Read:
    """One kind, or None or a truth value where that is among the others."""
    read = _reader(kinds[0])

    def read_either(value: Any) -> Any:
        return value if (value is None or isinstance(value, bool)) and type(value) in kinds else read(value)

    return read_either


def _several(kinds: tuple[Any, ...]) -> Read:
    """A tuple of any length, or of so many values."""
    readers = [_reader(each) for each in kinds if each is not ...]
    if kinds[-1] is ...:
        return lambda value: tuple(map(readers[0], _checked(value, list, tuple)))

    def read_each(value: Any) -> Any:
        return tuple(read(item) for read, item in zip(readers, _checked(value, list, tuple), strict=True))

    return read_each


def _checked(value: Any, kind: type, called: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:60]!r} is no {called.__name__}")
    return value


def as_document(value: Any) -> Any:
    """A dataclass as an object of JSON, and all that is inside: ``dataclasses.asdict`` without copies of what is plain.

    >>> from ntrm.results.documents import Box
    >>> as_document({"boxes": (Box(1, 2, 3, 4),)})
    {'boxes': [{'top': 1, 'left': 2, 'height': 3, 'width': 4}]}
    """
    if type(value) in _PLAIN:
        return value
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_document(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {name: as_document(each) for name, each in value.items()}
    return [as_document(each) for each in value] if isinstance(value, tuple | list) else value


_PLAIN = frozenset({str, int, float, bool, type(None)})


def number(value: Any) -> float:
    """A finite number of JSON, whole or not; a ``ValueError`` for anything else."""
    # Most are floats, of which nothing else need be asked.
    is_number = type(value) is float or (isinstance(value, int | float) and not isinstance(value, bool))
    if not is_number or not math.isfinite(value):
        not_a_number(repr(value))
    return float(value)


def not_a_number(text: object) -> NoReturn:
    """Refuse NaN and infinities, which some programs write into JSON."""
    raise ValueError(f"{text} is no number")
