"""JSON as the dataclasses that describe it: a document is what its fields say, or it is damaged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter

Kind = TypeVar("Kind")
Document = dict[str, Any]

STRICT: ConfigDict = {"strict": True, "allow_inf_nan": False}
"""The ``__pydantic_config__`` of a document: nothing passes for something else, as a text would for a number."""


def parsed(kind: Callable[..., Kind], content: bytes | str) -> Kind:
    """The document in a file's content; a ``ValueError`` that says where it is damaged. Further keys are ignored.

    >>> from ntrm.results.documents import Box
    >>> parsed(Box, '{"top": 1, "left": 2, "height": 3, "width": 4}')
    Box(top=1, left=2, height=3, width=4)
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    text = content if isinstance(content, bytes) else content.encode()
    if b"NaN" in text or b"Infinity" in text:
        from_json(text, allow_inf_nan=False)  # also where a document may hold anything
    try:
        document: Kind = _reader(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))) from error
    return document


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
