"""YAML as people mean it: plain values only, ``no`` is a word, ``1e-4`` is a number, no key twice, no references."""

from __future__ import annotations

import re
from typing import Any

import yaml

from ntrm.core.errors import DataError

MOST_CHARACTERS = 64_000
"""A recipe is a page of text; anything larger is not one."""


class _Loader(yaml.SafeLoader):
    """The safe loader with the scalars of YAML 1.2.

    In YAML 1.1, which PyYAML reads, ``no`` is false, ``1e-4`` is a word and ``1:30`` is ninety.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the base class has it so

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse references: a few lines of them can stand for gigabytes."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("references (*name) are not allowed here")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice, since nobody can tell which was meant."""
        keys = [str(key.value) for key, _ in node.value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.YAMLError(f"given twice: {', '.join(twice)}")
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("null", r"|~|null|Null|NULL", ["", "~", "n", "N"]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+0123456789.")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)
# PyYAML's own takes a leading zero for octal.
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _loader, node: int(node.value))


def parse_yaml(text: str, what: str) -> Any:
    """The values that ``text`` holds; ``what`` names it in errors.

    >>> parse_yaml("{resident: no, learning_rate: 1e-4, steps: 010}", "the example")
    {'resident': 'no', 'learning_rate': 0.0001, 'steps': 10}
    """
    if len(text) > MOST_CHARACTERS:
        raise DataError(f"{what} is too long", got=f"{len(text):,} characters", expected=f"{MOST_CHARACTERS:,} at most")
    try:
        return _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"cannot understand {what}", got=reason, expected="YAML with plain values") from error
