"""Ways to train on synthetic skin, by name, for ``research/carry_over.py``.

A name is ``[FORM-]…ARM[+WORD…]``: ``gain+mix``, ``long-half``, ``long3-paper-gain+mix+loose+dark``. ``ARMS`` has the
arms and ``FORMS`` what may stand before them (length, width, the relation module). Words add drawings (``DRAWINGS``)
and colours (``COLOURS``) to an arm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from research.colouring import PARTS, Colouring

LEVELS = ("10x", "5x")


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    colour: Colouring = field(default_factory=Colouring)
    besides: tuple[str, ...] = ()
    """Kinds of sections beside ``train``."""
    beside_share: float | None = None
    """Share of the windows that come from these; None: as many as there are."""
    mosaic: bool = False
    fill: bool = False
    """Whether other tissue takes the place of the glass in some windows."""
    consistency: float = 0.0
    """Weight of the divergence between what is said of two colourings of a window; half as many windows a step."""
    arch: str = "ntrm-control"
    width: float = 0.5
    weights: bool = False
    """Whether the encoder starts from ImageNet (width 1)."""
    steps: int = 1000
    batch: int = 24

    def long(self, times: float = 1) -> Arm:
        """With as many windows as the bundled model was trained with, or a multiple of that."""
        return replace(self, steps=round(3000 * times), batch=32)

    def wide(self) -> Arm:
        """At full width, from ImageNet."""
        return replace(self, width=1.0, weights=True)


FULL, HALF, MORE = (Colouring.full(strength) for strength in (1.0, 0.5, 1.5))
TISSUE, WEAVE = {"tissue": 1.0}, {"weave": 0.6}
ALL = replace(FULL, **TISSUE, **WEAVE)
NORMAL, VARIED, STRANDS, BOTH = ("normal",), ("varied",), ("strands",), ("strands", "varied-strands")
SKIN_TOO: dict[str, Any] = {"besides": VARIED, "mosaic": True}
ARMS: dict[str, Arm] = {
    "recipe": Arm(),
    "full": Arm(FULL),
    "half": Arm(HALF),
    "more": Arm(MORE),
    **{f"less-{part}": Arm(FULL.without(part)) for part in PARTS},
    **{f"only-{part}": Arm(Colouring(**{part: 1.0})) for part in PARTS},
    "gain+mix": Arm(Colouring(gain=1.0, mix=1.0)),
    "half+varied": Arm(HALF, VARIED),
    "half+strands": Arm(HALF, STRANDS),
    "half+both": Arm(HALF, BOTH),
    "recipe+strands": Arm(besides=STRANDS),
    "recipe+both": Arm(besides=BOTH),
    "tissue": Arm(replace(FULL, **TISSUE)),
    "weave": Arm(replace(FULL, **WEAVE)),
    "consistent": Arm(FULL, consistency=1.0),
    "normal": Arm(FULL, NORMAL),
    "varied": Arm(FULL, VARIED),
    "mosaic": Arm(FULL, mosaic=True),
    "recipe-varied": Arm(besides=VARIED),
    "all": Arm(ALL, **SKIN_TOO),
    "all-half": Arm(replace(HALF, **TISSUE, **WEAVE), **SKIN_TOO),
    "all-recipe": Arm(Colouring(**WEAVE), **SKIN_TOO),
    "all-less-tissue": Arm(replace(FULL, **WEAVE), **SKIN_TOO),
    "all-less-weave": Arm(replace(FULL, **TISSUE), **SKIN_TOO),
    "all-less-mosaic": Arm(ALL, VARIED),
    "all-less-varied": Arm(ALL, mosaic=True),
    "all-consistent": Arm(ALL, **SKIN_TOO, consistency=1.0),
}
"""``recipe`` is the recipe ``fast`` as it is; ``full`` adds the colours that were first tried."""

FORMS: Mapping[str, Callable[[Arm], Arm]] = {
    "long": Arm.long,
    "long2": lambda arm: arm.long(2),
    "long3": lambda arm: arm.long(3),
    "wide": Arm.wide,
    "paper": lambda arm: replace(arm, arch="ntrm-paper"),
}
"""``long``: as many windows as the bundled model saw; ``paper``: with the relation module."""

DRAWINGS = ("loose", "dark", "strands")
"""Sections drawn so come in beside the training part's; with ``normal`` also some without a cancer."""
BESIDE_SHARE, SECOND_SHARE = 0.4, 0.6
"""Share of the windows that come from such sections; from those of the phantom's second version."""
COLOURS: dict[str, dict[str, float]] = {
    "seldom": {"share": 0.4},
    "tissue": {"tissue": 0.5},
    **{part: {part: 1.0} for part in PARTS},
}
"""What a word changes in the colouring; ``seldom`` recolours two windows of five in place of four."""

SCREENING = (
    "gain+mix+strands+tissue",
    "gain+mix+loose+strands+normal",
    "gain+mix+dark",
    "gain+mix+loose+dark+normal+tissue",
    "gain+mix+normal+seldom+tissue",
    "gain+mix+loose+seldom",
    "gain+mix+dark+strands+normal+seldom",
    "gain+mix+loose+dark+strands+seldom+tissue",
)
"""Eight runs for six factors (2^(6-3)): half of the runs have each. Written as ±1, strands is the product of dark and
seldom, normal that of loose and seldom with the other sign, tissue that of loose and dark."""


def arm_named(name: str) -> Arm:
    """The arm of a name; ``KeyError`` with what is unknown in it."""
    form, _, rest = name.partition("-")
    if form in FORMS and rest:
        return FORMS[form](arm_named(rest))
    if name in ARMS:
        return ARMS[name]
    base, *words = name.split("+")
    while words and f"{base}+{words[0]}" in ARMS:
        base = f"{base}+{words.pop(0)}"
    return _with_words(ARMS[base], words)


def _with_words(arm: Arm, words: list[str]) -> Arm:
    drawn = [word for word in DRAWINGS if word in words]
    besides = [*arm.besides, *(["-".join(drawn)] if drawn else [])]
    if "second" in words:
        besides.append("second")
    if "normal" in words:
        besides.append("-".join(["varied", *drawn]))
    colour = arm.colour
    for word in words:
        if word not in (*DRAWINGS, "second", "normal", "mosaic", "fill"):
            colour = replace(colour, **COLOURS[word])
    share = (SECOND_SHARE if "second" in words else BESIDE_SHARE) if besides else None
    mosaic, fill = arm.mosaic or "mosaic" in words, arm.fill or "fill" in words
    return replace(arm, colour=colour, besides=tuple(besides), beside_share=share, mosaic=mosaic, fill=fill)


class Job(NamedTuple):
    """An arm at a level with a seed."""

    arm: str
    level: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}_{self.level}_{self.seed}"


def read_plan(text: str) -> list[Job]:
    """Jobs of a plan, such as ``full:10x:0,1 recipe:5x:0``; unknown arms are refused."""
    jobs = []
    for word in text.split():
        arm, level, seeds = word.split(":")
        try:
            arm_named(arm)
        except KeyError as error:
            raise SystemExit(f"unknown arm {word}: {error}; arms are {', '.join(ARMS)}") from error
        if level not in LEVELS:
            raise SystemExit(f"unknown level {word}: one of {', '.join(LEVELS)}")
        jobs += [Job(arm, level, int(seed)) for seed in seeds.split(",")]
    return jobs
