"""What a network is called and was trained for: the content of ``config.json``. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ntrm.core.errors import RefusedError, UsageError, check_number, plain_number
from ntrm.core.labels import SKIN, LabelSchema, as_schema
from ntrm.core.mpp import Resolution

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

NETWORKS = frozenset(
    {
        "ntrm-paper", "ntrm-control", "ntrm-released", "unet-resnet18", "unet-vgg16", "attention-unet",
        "deeplabv3plus", "mit-b0", "mit-b2", "mit-trm",
    }
)  # fmt: skip
"""What the registry can build, for code that must not import torch."""

DEFAULT, DEFAULT_NETWORK = "ntrm", "ntrm-paper"
"""The default of this version, and what that is now: networks are saved under this name, and stay what they are."""

Option = str | int | float | bool | None


@dataclass(frozen=True)
class ModelConfig:
    """Architecture by name with its options, its classes, and the images it expects."""

    arch: str
    schema: LabelSchema
    options: Mapping[str, Option] = field(default_factory=dict)
    """Arguments of the architecture besides the number of classes."""
    mpp: float | None = None  # µm/px it was trained at; None until it has been trained
    window: int = 256
    """Side in pixels of the windows it was trained on: a graph pooled over a larger field is another graph."""
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    name: str = ""
    version: str = ""
    licence: str = "Apache-2.0"
    data: str = ""  # Fingerprint of the training data
    trained_on: tuple[str, ...] = ()
    """Short hashes of the images it was trained on, and those of the models it started from; empty if not known."""
    temperature: float = 1.0  # Logits are divided by this before the softmax; set by calibration

    def __post_init__(self) -> None:
        if not isinstance(self.schema, LabelSchema):
            raise UsageError("classes are no label schema", got=repr(self.schema), expected="an ntrm LabelSchema")
        if odd := [value for value in self.options.values() if not isinstance(value, Option)]:
            raise UsageError("impossible options", got=odd, expected="text, numbers, true, false or none")
        # They go into tables, pages and images, which other programs show.
        options = [value for value in self.options.values() if isinstance(value, str)]
        texts: list[object] = [self.arch, self.name, self.version, self.licence, self.data, *self.trained_on, *options]
        if strange := [text for text in texts if not isinstance(text, str) or not text.isprintable()]:
            raise UsageError("impossible description", got=repr(strange), expected="text without control characters")
        if self.mpp is not None:
            check_number("µm/px", self.mpp, 0, math.inf)
            self._set("mpp", Resolution.square(self.mpp).x)
        check_number("window", self.window, 32, 2**20, whole=True)
        if self.window % 32:
            raise UsageError("impossible window", got=repr(self.window), expected="a positive multiple of 32")
        self._set("window", int(self.window))
        for name, least in (("mean", -1e9), ("std", 1e-9)):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or len(values) != 3:
                raise UsageError(f"impossible {name}", got=repr(values), expected="three numbers: red, green and blue")
            for value in values:
                check_number(name, value, least, 1e9)
            self._set(name, tuple(map(float, values)))
        check_number("temperature", self.temperature, 1e-9, 1e9)
        self._set("temperature", float(self.temperature))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # frozen for everyone else

    @property
    def classes(self) -> int:
        """Number of classes K."""
        return len(self.schema)

    def check_mpp(self) -> None:
        """Refuse a network without µm/px."""
        if self.mpp is None:
            hint = "train it, or state it with network.describe(mpp=…) before saving"
            raise RefusedError("the network does not state its µm/px", got="none", hint=hint)

    def as_dict(self) -> dict[str, Any]:
        """For ``config.json``."""
        tissues = [{"name": t.name, "title": t.title, "rgb": list(t.rgb)} for t in self.schema.tissues]
        return {
            "arch": self.arch,
            "options": dict(self.options),
            "classes": tissues,
            "background": self.schema.background,
            **{key: getattr(self, key) for key in ("mpp", "window")},
            **{key: list(getattr(self, key)) for key in ("mean", "std")},
            **{key: getattr(self, key) for key in ("temperature", "name", "version", "licence", "data")},
            "trained_on": list(self.trained_on),
        }


def network_named(name: str) -> str:
    """The network that a name given by a user means."""
    return DEFAULT_NETWORK if name == DEFAULT else name


def schema_for(classes: int | LabelSchema | Sequence[str]) -> LabelSchema:
    """The schema itself, one of class names, the skin's for 12 classes, or numbered classes for another count.

    >>> schema_for(12).name, schema_for(3).names, schema_for(["stroma", "tumour"]).names
    ('skin', ('class 0', 'class 1', 'class 2'), ('stroma', 'tumour'))
    """
    if isinstance(classes, LabelSchema) or (isinstance(classes, Sequence) and not isinstance(classes, str)):
        return as_schema(classes)
    count = plain_number(classes)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 < count < 255:
        expected = '2 to 254, class names such as ["stroma", "tumour"], or a label schema'
        raise UsageError("wrong number of classes", got=repr(classes), expected=expected)
    return SKIN if count == len(SKIN) else as_schema([f"class {k}" for k in range(count)])
