"""``classes.csv`` of a folder that was annotated from nothing: the tissues that people name there, as they are now.

``run.json`` keeps the classes that the folder began with. A class is added at the end, or renamed in its place, and
none is ever removed: an index means one tissue in every mask and log of the folder.
"""

from __future__ import annotations

import colorsys
from collections.abc import Collection
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import holding, whole_file
from ntrm.core.labels import IGNORE, RGB, SAFE_COLOURS, UNNAMED, LabelSchema, Tissue, as_schema, read_schema, rgb_of
from ntrm.results.folder import ResultsFolder
from ntrm.results.manifest import read_run
from ntrm.results.paths import CLASSES, RUN_LOCK

BACKGROUND = "background"
MOST_BYTES = 2**20
MOST = IGNORE - 2  # Names that may be given: background and unnamed tissue are added
FAR_FROM_TISSUE = (2, 0, 10, 5, 9, 11, 7, 3, 1, 6, 4)
"""The safe colours, each the farthest, in OKLab, from eosin, haematoxylin, glass and those before it."""


def free_colours(number: int, taken: Collection[RGB] = ()) -> list[RGB]:
    """So many that are not ``taken``: colours that stand out from pink tissue first, then more and more hues.

    >>> free_colours(2), len(set(free_colours(254)))
    ([(102, 0, 0), (0, 34, 119)], 254)
    """
    safe = [SAFE_COLOURS[k] for k in FAR_FROM_TISSUE]
    hues = (colorsys.hsv_to_rgb(k * 0.381966 % 1, 1 - k % 3 / 5, 1 - k % 4 / 6) for k in count())
    every = (*safe, *(rgb_of(round(255 * each) for each in hue) for hue in islice(hues, 600)))
    return [*dict.fromkeys(colour for colour in every if colour not in taken)][:number]


def given_classes(text: str) -> LabelSchema:
    """The classes of a file such as ``classes.csv``, or of names between commas, with background and unnamed tissue.

    >>> given_classes("tumour,stroma").names
    ('tumour', 'stroma', 'background', 'unnamed')
    """
    if text.lower().endswith(".csv"):
        schema = read_schema(Path(text))
    else:
        names = [name.strip() for name in text.split(",")]
        if len(names) > MOST:
            raise UsageError("too many classes", got=len(names), expected=f"at most {MOST}")
        every = zip(names, free_colours(len(names)), strict=True)
        tissues = tuple(Tissue(k, name, name, rgb) for k, (name, rgb) in enumerate(every))
        schema = LabelSchema(tissues, as_schema(names).background)
    if not {*schema.names} - {schema.background, UNNAMED}:
        raise UsageError("no tissue among the classes", got=", ".join(schema.names), hint="name at least one tissue")
    added = () if schema.background else ((BACKGROUND, "glass", range(256)),)
    for name, title, greys in (*added, (UNNAMED, "tissue without a name yet", range(150, 256))):
        if name not in schema.names:
            taken = {tissue.rgb for tissue in schema.tissues}
            rgb = next((grey, grey, grey) for grey in greys if (grey, grey, grey) not in taken)
            schema = LabelSchema((*schema.tissues, Tissue(len(schema), name, title, rgb)), schema.background)
    return replace(schema, background=schema.background or BACKGROUND, unnamed=UNNAMED)


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


def change_class(out: Path, name: str, rgb: RGB | None = None, *, before: str | None = None) -> LabelSchema:
    """Give the class that is called ``before`` a name and a colour, or add one at the end; one process at a time.

    What steps say of a class goes by its number, and so follows.
    """
    if read_run(out).model is not None:
        raise RefusedError("the classes are the model's", hint="only those of `ntrm annotate` can be changed")
    with holding(out / RUN_LOCK, wait=True):
        schema = folder_classes(out)
        if before is None:
            colour = rgb or free_colours(1, {tissue.rgb for tissue in schema.tissues})[0]
            new = Tissue(len(schema), name, name, colour)
        else:
            old = schema[before]
            if name != before and before in (schema.background, UNNAMED):
                raise UsageError("glass and unnamed tissue keep their names", got=name, expected=before)
            new = replace(old, name=name, title=old.explanation or name, rgb=rgb or old.rgb)
        tissues = (*schema.tissues[: new.index], new, *schema.tissues[new.index + 1 :])
        schema = replace(schema, tissues=tissues)  # refused where two share a name or a colour
        write_classes(out, schema)
    return schema
