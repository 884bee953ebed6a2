import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import pytest

from ntrm.results.documents import Box, read_summary
from ntrm.results.graph_document import EdgeWindow, StrongestWindows
from ntrm.results.typed_json import DAMAGES, as_document, read_as


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[float, ...]


@dataclass(frozen=True)
class Outer:
    point: tuple[int, float]
    flag: bool | None
    share: float | None
    either: float | bool
    inner: Mapping[str, Inner]
    more: tuple[Inner, ...]
    free: dict[str, object]


GOOD = {
    "point": [1, 2],
    "flag": None,
    "share": 1,
    "either": True,
    "inner": {"a": {"name": "x", "sizes": []}},
    "more": [{"name": "y", "sizes": [1, 2.5]}],
    "free": {"any": [1, {"thing": None}]},
}


def test_values_are_read_as_the_kinds_of_their_fields():
    found = read_as(Outer, GOOD)
    assert found == Outer((1, 2.0), None, 1.0, True, {"a": Inner("x", ())}, (Inner("y", (1.0, 2.5)),), GOOD["free"])
    assert [type(value) for value in (found.point[1], found.share, found.more[0].sizes[0])] == [float] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"point": [1]},
        {"point": [1, 2, 3]},
        {"point": [1.5, 2]},
        {"point": {"0": 1}},
        {"flag": 1},
        {"share": "1"},
        {"share": float("nan")},
        {"share": True},
        {"inner": []},
        {"inner": {"a": None}},
        {"more": [{"name": 3, "sizes": []}]},
        {"more": [{"sizes": []}]},
        {"free": []},
    ],
)
def test_what_is_of_another_kind_is_refused(wrong):
    with pytest.raises(DAMAGES):
        read_as(Outer, GOOD | wrong)


def test_a_document_is_what_the_library_makes_of_a_dataclass(results):
    edge = StrongestWindows("EPI", "BCC", (EdgeWindow(1, 2, 3, 4, 0.5), EdgeWindow(5, 6, 7, 8, 0.25)))
    for value in (edge, Box(1, 2, 3, 4), read_summary(results / "two")):
        assert json.dumps(as_document(value)) == json.dumps(asdict(value))
