"""How a network is trained: a recipe by name or from a file, with single fields changed, and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from ntrm.core.errors import DataError, UsageError, check_number, choices_error, did_you_mean, plain_number
from ntrm.core.io import write_text
from ntrm.data.augment import Augment

MOST_CHARACTERS = 64_000  # A recipe is a page of text; anything larger is not one

FINETUNE = "finetune"
RECIPES = ("paper", "fast", "robust", FINETUNE)  # Recipes that come with the package: files in training/recipes

AUGMENTATIONS = {"none": Augment, "paper": Augment.paper, "full": Augment.full, "strong": Augment.strong}
"""Names that ``augment`` may have instead of fields."""

Number = int | float  # A whole number stays one: recipes are compared, and folders named, by their values as text
Weight = Annotated[Number, Field(ge=0, le=100)]
Share = Annotated[Number, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=100_000)]
Steps = Annotated[int, Field(ge=1, le=100_000_000)]


@dataclass(frozen=True, config=ConfigDict(strict=True, allow_inf_nan=False))
class Recipe:
    """One way to train; the same whatever the architecture, the data and the seed.

    >>> load_recipe("paper").batch, load_recipe("paper", {"batch": 8}).batch
    (4, 8)
    """

    name: Annotated[str, Field(pattern=r"^[\w][\w .+-]{0,63}$")]
    epochs: Count | None  # Length of the training in passes over the training windows; either this or ``steps``
    steps: Steps | None  # Length of the training in optimiser steps
    batch: Annotated[int, Field(ge=1, le=65_536)]  # Windows per step, over all processes together
    optimiser: Literal["adam", "adamw"]
    learning_rate: Annotated[Number, Field(ge=1e-9, le=10)]
    weight_decay: Annotated[Number, Field(ge=0, le=10)]
    gradient_clip: Annotated[Number, Field(ge=1e-9, le=1e9)] | None  # Maximum norm of all parameters' gradient
    schedule: Literal["plateau", "cosine", "constant"]
    """``plateau``: lowered when the validation loss stalls · ``cosine``: to 0 at the end · ``constant``."""
    warmup: Annotated[Number, Field(ge=0, le=0.9)]  # Fraction of all steps over which the learning rate rises from 0
    plateau_factor: Annotated[Number, Field(ge=0.01, le=0.99)]
    plateau_patience: Count  # Validations without better validation loss after which ``plateau_factor`` is applied
    early_stopping: Count | None  # Validations without better validation loss after which the training ends
    validate_every: Steps | None  # Steps between validations (and checkpoints); None for once an epoch
    keep: Literal["loss", "iou", "last"]
    """Which weights become the model: of the lowest validation ``loss``, of the highest ``iou``, or the ``last``."""
    precision: Literal["auto", "float32", "bfloat16", "float16"]
    compile: bool  # Whether the network is compiled first; pays off in long trainings
    replay: bool  # Whether steps are recorded once and replayed as CUDA graphs; on one GPU, if not compiled
    window: Annotated[int, Field(ge=32, le=8192, multiple_of=32)]  # Side of a window in pixels
    overlap: Annotated[int, Field(ge=0)]  # Least overlap of neighbouring windows in pixels
    drop_background: bool  # Whether windows without tissue are left out
    augment: dict[str, Any]  # Fields of Augment, as they were given; the others are as they are without augmentation
    weighting: Literal["batch", "running"]  # Where class weights come from
    coarse: Weight  # λ, the weight of the coarse head's loss
    encoder_weights: Annotated[str, Field(min_length=1)]  # auto · imagenet · none · a file
    freeze_batch_norm: bool  # Whether running statistics and affine parameters of batch norm stay as they start
    resident: Literal["auto", "yes", "no"]  # Whether the windows are held in the device's memory
    workers: Annotated[int, Field(ge=0, le=256)]  # Processes that read windows where they are not resident
    balance: Share  # Power of the class weights: 1 as the paper has it, 0 for none
    dice: Weight  # Weight of the soft Dice loss
    fill: Share  # Probability that the glass of a window is replaced by another window, tissues and all

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise UsageError(
                "recipe: the length of the training is not clear",
                got=f"epochs {self.epochs}, steps {self.steps}",
                expected="exactly one of the two",
                hint="leave the other null",
            )
        check_number("overlap of a recipe", self.overlap, 0, self.window - 1, whole=True)
        object.__setattr__(self, "augment", _plain_augment(self.augment))

    @property
    def augmentation(self) -> Augment:
        """The augmentation itself."""
        return _make_augment(self.augment)

    def as_dict(self) -> dict[str, Any]:
        """For ``recipe.yaml`` and JSON; every field in order, and every field of the augmentation."""
        return {**asdict(self), "augment": _with_lists(asdict(self.augmentation))}


FIELDS = tuple(field.name for field in fields(Recipe))


def load_recipe(source: str | Path, overrides: Mapping[str, object] | None = None) -> Recipe:
    """A recipe by name or from a YAML file, with some fields changed.

    A file lists every field, or says ``base: fast`` (or another name) and lists what differs. ``overrides`` come last;
    ``augment.flip`` names one field of the augmentation. Setting ``steps`` clears ``epochs`` and vice versa.

    >>> load_recipe("fast", {"augment.stain": 0, "epochs": 3}).steps is None
    True
    """
    document = _read(source)
    base = document.pop("base", None)
    values: dict[str, Any] = {"name": Path(source).stem}
    if base is not None:
        if base not in RECIPES:
            raise choices_error(f"{source}: unknown base", str(base), RECIPES)
        _merge(values, {key: value for key, value in _read(base).items() if key != "name"}, f"recipe {base}")
    _merge(values, document, str(source))
    _merge(values, overrides or {}, "the changes to the recipe")
    missing = [field for field in FIELDS if field not in values]
    if missing:
        raise DataError(
            f"{source} is not a complete recipe",
            got=f"nothing about {', '.join(missing)}",
            hint="add these fields, or a line `base: fast` to take them from there",
        )
    try:
        return Recipe(**{field: plain_number(value) for field, value in values.items()})
    except ValidationError as error:
        wrong = error.errors()[-1]
        field, got = str(wrong["loc"][0]), wrong["input"]
        expected = wrong["msg"].removeprefix("Input should be ")
        hint = did_you_mean(str(got), re.findall(r"'(\w+)'", expected))
        raise UsageError(f"recipe: impossible {field}", got=repr(got), expected=expected, hint=hint) from None


def check_start(recipe: Recipe, init: object) -> None:
    """Refuse to fine-tune where there is no trained model to start from."""
    if recipe.name == FINETUNE and init is None:
        raise UsageError(
            f"recipe {FINETUNE} starts from a trained model",
            got="none to start from",
            expected="--init M",
            hint="name the model with --init, or train from scratch with --recipe fast",
        )


def parse_overrides(pairs: Sequence[str]) -> dict[str, object]:
    """Changes to a recipe from ``key=value`` texts; values are YAML.

    >>> parse_overrides(["batch=8", "augment.flip=0", "gradient_clip=null", "learning_rate=1e-4"])
    {'batch': 8, 'augment.flip': 0, 'gradient_clip': None, 'learning_rate': 0.0001}
    """
    changes: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = map(str.strip, pair.partition("="))
        if not equals or not key or not value:
            raise UsageError("cannot understand the change", got=pair, expected="key=value, for example batch=8")
        if key in changes:
            raise UsageError(f"{key} is changed twice", got=pair, hint="keep one of them")
        changes[key] = parse_yaml(value, f"the value of {key}")
    return changes


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe as a file that ``load_recipe`` reads."""
    write_text(path, yaml.safe_dump(recipe.as_dict(), sort_keys=False, allow_unicode=True))


def _read(source: str | Path) -> dict[str, Any]:
    """The document of a recipe of the package, by name, or of a file."""
    folder = resources.files("ntrm.training") / "recipes"
    path = folder / f"{source}.yaml" if str(source) in RECIPES else Path(source)
    if not path.is_file():
        raise choices_error("unknown recipe", str(source), [*RECIPES, "a YAML file"])
    try:
        with path.open(encoding="utf-8-sig") as stream:
            text = stream.read(MOST_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}", got=error, hint="save it as text in UTF-8") from error
    document = parse_yaml(text, f"recipe {source}")
    if not isinstance(document, dict):
        raise DataError(f"{source} is not a recipe", got=type(document).__name__, expected="lines of `field: value`")
    return document


def _merge(values: dict[str, Any], changes: Mapping[Any, object], where: str) -> None:
    """Put the fields of ``changes`` into ``values``; fields of the augmentation one by one."""
    unknown = [str(key) for key in changes if key not in FIELDS and not re.fullmatch(r"augment\..+", str(key))]
    if unknown:
        raise choices_error(f"{where}: unknown field of a recipe", ", ".join(unknown), FIELDS)
    for one, other in (("epochs", "steps"), ("steps", "epochs")):
        if changes.get(one) is not None and other not in changes:
            values[other] = None
    # ``augment`` before ``augment.flip``, whatever their order: a single field is a change to it.
    for key, value in sorted(changes.items(), key=lambda item: "." in item[0]):
        field, _, inner = key.partition(".")
        if field != "augment":
            values[field] = value
            continue
        named = AUGMENTATIONS.get(value) if isinstance(value, str) else None
        fields_given = {inner: value} if inner else asdict(named()) if named else value
        if not isinstance(fields_given, Mapping):
            raise choices_error("recipe: unknown value of augment", str(value), [*AUGMENTATIONS, "fields of its own"])
        values[field] = {**values.get(field, {}), **fields_given}


def _plain_augment(augment: Mapping[str, Any]) -> dict[str, Any]:
    """Checked fields of ``Augment`` in their order, ready for YAML and JSON."""
    known = {field.name: field.default for field in fields(Augment)}
    if unknown := [str(key) for key in augment if key not in known]:
        raise choices_error("recipe: unknown field of augment", ", ".join(unknown), known)
    plain = _with_lists({key: plain_number(augment[key]) for key in known if key in augment})
    for key, value in plain.items():
        pair = isinstance(known[key], tuple)
        numbers = value if pair and isinstance(value, list) and len(value) == 2 else [value] * (1 + pair)
        for number in numbers:
            check_number(f"augment.{key} of a recipe", number, -1e9, 1e9)
        if pair and numbers is not value:
            raise UsageError(f"impossible augment.{key} of a recipe", got=value, expected="a range such as [0.3, 1.5]")
    _make_augment(plain)
    return plain


def _with_lists(augment: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in augment.items()}


def _make_augment(plain: Mapping[str, Any]) -> Augment:
    settings: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    return Augment(**settings)


# --- YAML with plain values only: `no` is a word, `1e-4` is a number, no key twice, no references ---


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
        raise DataError(f"{what} is too long", expected=f"{MOST_CHARACTERS:,} characters at most")
    try:
        return _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"cannot understand {what}", got=reason, expected="YAML with plain values") from error
