"""Which annotation file belongs to which slide, and the optional tables of classes and slides."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ntrm.annotations import qupath
from ntrm.core.csv_text import read_columns, read_table
from ntrm.core.errors import DataError, UsageError, choices_error
from ntrm.core.io import PARTIAL
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.data.csv_tables import nearly, number, one_spelling
from ntrm.data.dataset import SPLITS
from ntrm.slides.slide_folders import SLIDE_SUFFIXES


@dataclass(frozen=True)
class Pair:
    """A slide and its annotations, under the name the case will have."""

    name: str
    slide: Path
    annotations: Path


@dataclass(frozen=True)
class Pairing:
    """Pairs, and files without a partner."""

    pairs: tuple[Pair, ...]
    slides_alone: tuple[Path, ...]
    annotations_alone: tuple[Path, ...]


FACTS = ("patient", "split", "mpp")
"""Columns of the table of slides besides ``slide``; each may be left out, but not all."""


@dataclass(frozen=True)
class SlideFacts:
    """Metadata of one slide from a table."""

    patient: str = ""
    split: str = ""
    mpp: float | None = None


def case_name(path: Path) -> str:
    """Name of a case: the file's name without its endings, characters replaced that a dataset does not take.

    QuPath's script names exports after the slide with or without its ending; both lead to the same name.

    >>> case_name(Path("S12 (a).ome.tif")), case_name(Path("S12 (a).ome.tif.geojson.gz"))
    ('S12 (a)', 'S12 (a)')
    """
    name, endings = path.name, (*qupath.SUFFIXES, *SLIDE_SUFFIXES, ".ome")
    while stem := next((name[: -len(end)] for end in endings if name.lower().endswith(end)), ""):
        name = stem
    name = re.sub(r"""[/\\:;*?"<>|]+""", "_", "".join(c if c.isprintable() else "_" for c in one_spelling(name)))
    name = name.encode()[:190].decode(errors="ignore").strip(" ").rstrip(". ")
    return name if re.match(r"\w", name) else f"_{name}"


def pair_files(slide_path: Path, annotation_path: Path) -> Pairing:
    """Slides and annotations by name; two single files belong together whatever their names are."""
    slide_files = _files(slide_path, SLIDE_SUFFIXES, "slides or images")
    annotation_files = _files(annotation_path, qupath.SUFFIXES, "GeoJSON files")
    if slide_path.is_file() and annotation_path.is_file():
        return Pairing((Pair(case_name(slide_path), slide_path, annotation_path),), (), ())
    by_slide, by_annotation = _by_name(slide_files), _by_name(annotation_files)
    common = sorted(by_slide.keys() & by_annotation.keys())
    if not common:
        got, hint = f"{slide_files[0].name} …, {annotation_files[0].name} …", "name every export after its slide"
        raise DataError("no slide has annotations", got=got, expected="<slide name>.geojson", hint=hint)
    return Pairing(
        pairs=tuple(Pair(case_name(by_slide[key]), by_slide[key], by_annotation[key]) for key in common),
        slides_alone=tuple(by_slide[key] for key in sorted(by_slide.keys() - by_annotation.keys())),
        annotations_alone=tuple(by_annotation[key] for key in sorted(by_annotation.keys() - by_slide.keys())),
    )


def _files(path: Path, suffixes: Iterable[str], what: str) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"no such file or folder: {path}", expected=what)
    files = [p for p in sorted(path.iterdir()) if p.is_file() and p.name.lower().endswith(tuple(suffixes))]
    files = [file for file in files if not file.name.startswith((".", PARTIAL))]
    if not files:
        qupath.refuse_project(path)
        raise DataError(f"no {what} in {path}", expected=f"files ending in {', '.join(suffixes)}")
    return files


def _by_name(files: Iterable[Path]) -> dict[str, Path]:
    """Files by lower-case name, since some file systems ignore case."""
    groups = defaultdict(list)
    for file in files:
        groups[case_name(file).lower()].append(file)
    for name, group in groups.items():
        if len(group) > 1:
            got, expected = ", ".join(file.name for file in group), "one slide and one GeoJSON file per name"
            raise DataError(f"two files for one name: {name}", got=got, expected=expected)
    return {name: group[0] for name, group in groups.items()}


def class_index(name: str, schema: LabelSchema, renamed: Mapping[str, str]) -> int | None:
    """Mask value of an annotation's class, or None if the class is unknown or could be several.

    ``renamed`` comes first (its keys in lower case; an empty target means ignore), then the name as it is, the name in
    any case, and the title in any case.
    QuPath ends the names of classes that are no tissue in a star; they are ignore.

    >>> from ntrm.core.labels import SKIN
    >>> [class_index(name, SKIN, {"tumour": "BCC"}) for name in ("Epidermis", "Tumour", "Ignore*", "nail")]
    [0, 9, 255, None]
    """
    wanted = renamed.get(name.lower(), name)
    if not wanted or (wanted == name and name.endswith("*")):
        return IGNORE
    if wanted in schema.names:
        return schema.index(wanted)
    names, titles = [name.lower() for name in schema.names], [tissue.title.lower() for tissue in schema.tissues]
    texts = names if wanted.lower() in names else titles
    return texts.index(wanted.lower()) if texts.count(wanted.lower()) == 1 else None


def check_names(names: Mapping[str, str], schema: LabelSchema) -> dict[str, str]:
    """A renaming with lower-case keys, every target known."""
    for target in names.values():
        if target and class_index(target, schema, {}) in (None, IGNORE):
            raise choices_error("the renaming leads to an unknown class", target, schema.names)
    return {source.strip().lower(): target for source, target in names.items()}


def read_names(path: Path) -> dict[str, str]:
    """Renaming of classes from a CSV with columns from, to; an empty ``to`` means ignore."""
    return {row["from"]: row["to"] for row in read_table(path, ("from", "to"))}


def read_slide_facts(path: Path) -> dict[str, SlideFacts]:
    """Patient, split and µm/px by case name, from a CSV with a column slide and any of patient, split, mpp."""
    columns, rows = read_columns(path, ("slide",))
    if nearly(columns, FACTS) or not set(FACTS).intersection(columns):
        expected = f"slide and any of {', '.join(FACTS)}"
        raise DataError(f"{path.name} has the wrong columns", got=", ".join(columns), expected=expected)
    facts: dict[str, SlideFacts] = {}
    for row in rows:
        split, mpp = row.get("split", ""), row.get("mpp", "")
        if split and split not in SPLITS:
            raise choices_error(f"{path.name}: unknown split of {row['slide']}", split, SPLITS)
        value = Resolution.square(number(mpp)).x if mpp else None
        name = case_name(Path(row["slide"])).lower()
        if name in facts:
            expected = "one row per slide, whatever the ending of its name"
            raise DataError(f"{path.name}: two rows for one slide", got=row["slide"], expected=expected)
        facts[name] = SlideFacts(row.get("patient", ""), split, value)
    return facts
