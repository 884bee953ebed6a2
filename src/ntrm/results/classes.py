"""``classes.csv`` of a folder that was annotated from nothing: the tissues that people name there, as they are now.

``run.json`` keeps the classes that the folder began with. A class is added at the end, or renamed in its place, and
none is ever removed: an index means one tissue in every mask and log of the folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ntrm.core.colours import further_colours
from ntrm.core.errors import DataError, RefusedError, UsageError, choices_error
from ntrm.core.io import holding, whole_file
from ntrm.core.labels import IGNORE, RGB, UNNAMED, LabelSchema, Tissue, as_schema, read_schema
from ntrm.results.folder import ResultsFolder
from ntrm.results.manifest import read_run
from ntrm.results.paths import CLASSES, RUN_LOCK

MOST_BYTES = 2**20
MOST = IGNORE - 2  # Classes that a person may ask for: background and unnamed tissue are added


def given_classes(text: str) -> LabelSchema:
    """The classes of a file such as ``classes.csv``, or of names between commas, with background and unnamed tissue.

    >>> given_classes("tumour,stroma").names
    ('tumour', 'stroma', 'background', 'unnamed')
    """
    if text.lower().endswith(".csv"):
        return complete(read_schema(Path(text)))
    names = [name.strip() for name in text.split(",")]
    if len(names) > MOST:
        raise UsageError("too many classes", got=len(names), expected=f"at most {MOST}")
    colours = further_colours(len(names))
    roles = as_schema([name or f"unreadable {k}" for k, name in enumerate(names)])
    return complete(replace(roles, tissues=tuple(Tissue(k, name, name, colours[k]) for k, name in enumerate(names))))


def complete(schema: LabelSchema) -> LabelSchema:
    """The classes with one for glass and one for tissue that nobody has named yet, where they have none."""
    tissues, background = list(schema.tissues), schema.background
    if not {*schema.names} - {background, UNNAMED}:
        raise UsageError("no tissue among the classes", got=", ".join(schema.names), hint="name at least one tissue")

    def add(name: str, title: str, greys: range) -> None:
        taken = {tissue.rgb for tissue in tissues}
        tissues.append(Tissue(len(tissues), name, title, next((g, g, g) for g in greys if (g, g, g) not in taken)))

    if background is None:
        background = "background"
        add(background, "background: glass", range(256))
    if UNNAMED not in schema.names:
        add(UNNAMED, "unnamed tissue", range(150, 256))
    return LabelSchema(tuple(tissues), background, schema.name, UNNAMED)


def folder_classes(out: Path) -> LabelSchema:
    """The classes of a folder that was annotated from nothing."""
    try:
        schema = read_schema(out / CLASSES, lambda path: ResultsFolder(path.parent).open(path.name, most=MOST_BYTES))
        if schema.background is None or UNNAMED not in schema.names:
            raise DataError("a class for glass or for unnamed tissue is missing", got=", ".join(schema.names))
    except DataError as error:
        hint = f"put it back as it was: masks and corrections go by the numbers in {CLASSES}"
        raise DataError(f"cannot use {out / CLASSES}", got=f"{error.what}: {error.got}", hint=hint) from error
    return replace(schema, unnamed=UNNAMED)


def write_classes(out: Path, schema: LabelSchema) -> None:
    """Write them, whole or not at all."""
    with whole_file(out / CLASSES) as partial:
        schema.write_csv(partial)


def _changed(out: Path, change: Callable[[LabelSchema], Tissue]) -> LabelSchema:
    """The classes with one that is new, or that stands in its place; one process at a time."""
    if read_run(out).model is not None:
        raise RefusedError("the classes are the model's", hint="only those of `ntrm annotate` can be changed")
    with holding(out / RUN_LOCK, wait=True):
        schema = folder_classes(out)
        new = change(schema)
        tissues = (*schema.tissues[: new.index], new, *schema.tissues[new.index + 1 :])
        schema = replace(schema, tissues=tissues)  # refused where two share a name or a colour
        write_classes(out, schema)
    return schema


def add_class(out: Path, name: str, title: str = "", rgb: RGB | None = None) -> LabelSchema:
    """One more tissue, at the end."""

    def new(schema: LabelSchema) -> Tissue:
        colour = rgb or further_colours(1, [tissue.rgb for tissue in schema.tissues])[0]
        return Tissue(len(schema), name, title or name, colour)

    return _changed(out, new)


def change_class(
    out: Path, index: int, before: str, name: str = "", title: str = "", rgb: RGB | None = None
) -> LabelSchema:
    """Another name, title or colour for the class that is called ``before``; what steps say of it goes along."""

    def new(schema: LabelSchema) -> Tissue:
        if not 0 <= index < len(schema) or schema.names[index] != before:
            raise choices_error(f"class {index} is not called so", before, schema.names)
        old = schema.tissues[index]
        if name not in ("", before) and before not in {*schema.nameable} - {schema.background}:
            raise UsageError("glass and unnamed tissue keep their names", got=before, hint="give it another title")
        told = title or (name if name and old.title == old.name else old.title)
        return replace(old, name=name or old.name, title=told, rgb=rgb or old.rgb)

    return _changed(out, new)
