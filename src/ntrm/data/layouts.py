"""Dataset folders as cases: which files there are, how they belong together, patients, splits and µm/px."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError, choices_error, first_names, listed
from ntrm.core.io import PARTIAL
from ntrm.core.labels import SKIN, LabelSchema, read_schema
from ntrm.core.mpp import level_factor, level_resolution
from ntrm.data.csv_tables import fault_of, is_good_name, one_spelling, read_cases
from ntrm.data.dataset import Case, Dataset
from ntrm.data.faults import Fault, fault
from ntrm.data.image_files import RGB8, read_header

SKIN_GROUPS = {
    "BCC": "1-2 5-6 7-8 11-12 19-20-21 23-24 25-26 27-28 33-34 37-38 40-41 46-47 55-56 60-61 83-84",
    "SCC": "1-2 5-6 10-11 15-16 17-18 34-35",
    "IEC": "2-3 4-5 6-7 8-9 10-11 13-14 19-20 22-23 27-28 29-30 34-35 43-44 51-52",
}
"""Section numbers per cancer type; numbers joined by a hyphen are one patient, every other section is its own."""
_PATIENTS = {
    f"{cancer}_{number}": f"{cancer}_{group}"
    for cancer, groups in SKIN_GROUPS.items()
    for group in groups.split()
    for number in group.split("-")
}

SKIN_SECTIONS = {"BCC": 140, "SCC": 60, "IEC": 90}
"""How many sections the released dataset has per cancer type, numbered from 1."""

_SECTION = re.compile(r"((BCC|SCC|IEC)_[0-9]+)(_[0-9]+)?")


def section_of(name: str) -> str:
    """Section that a file's stem belongs to: tiles cut from a skin section carry a number behind its name.

    >>> section_of("BCC_11_0007"), section_of("BCC_11"), section_of("slide_11_0007")
    ('BCC_11', 'BCC_11', 'slide_11_0007')
    """
    match = _SECTION.fullmatch(name)
    return match.group(1) if match else name


def patient_of(name: str) -> str:
    """Stable patient id of a section (or of a tile cut from it); a name in no known group is its own patient.

    >>> patient_of("BCC_20"), patient_of("BCC_3"), patient_of("BCC_11_0007"), patient_of("core7")
    ('BCC_19-20-21', 'BCC_3', 'BCC_11-12', 'core7')
    """
    section = section_of(name)
    return _PATIENTS.get(section, section)


def cancer_of(name: str) -> str:
    """Cancer type that a skin section is filed under, or the empty string.

    >>> cancer_of("IEC_4"), cancer_of("IEC_4_0001"), cancer_of("testA_1")
    ('IEC', 'IEC', '')
    """
    match = _SECTION.fullmatch(name)
    return match.group(2) if match else ""


ARCHIVES = frozenset({".zip", ".7z", ".tar", ".gz", ".tgz", ".rar"})
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff"})
CLASSES, CASES = "classes.csv", "cases.csv"

LAYOUTS = """\
layout queensland: [data/]{1x,2x,5x,10x}/Images/*.tif and Masks/*.png
            layout plain: Images/, Masks/ (indexed, or RGB in the colours of classes.csv),
                classes.csv (index,name,r,g,b), cases.csv (name,group,split,mpp)
            masks alone (for statistics): Masks/*.png or *.png"""


@dataclass
class Survey:
    """A dataset as it lies on disk: every case that was found, and every fault that shows without decoding."""

    root: Path
    layout: str
    schema: LabelSchema | None = None  # None where the classes are unknown; then no mask can be read
    cases: list[Case] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def relative(self, path: Path) -> str:
        """Path as reports show it."""
        return path.relative_to(self.root).as_posix()


class Folders(NamedTuple):
    """One folder of images and one of masks that belong together."""

    level: str
    images: Path | None
    masks: Path


def survey_dataset(root: Path) -> Survey:
    """Walk a dataset folder of any layout; raises only where it is no dataset at all."""
    if not root.is_dir():
        hint = "unpack it, and give the folder" if root.suffix.lower() in ARCHIVES else "check the path"
        raise UsageError("no such dataset folder", got=root, expected="a folder", hint=hint)
    layout, pairs = _find_layout(root)
    survey = Survey(root, layout)
    for folders in pairs:
        images, masks = _scan(survey, folders.images) if folders.images else {}, _scan(survey, folders.masks)
        for name in sorted({*images, *masks}):
            image, mask = images.get(name), masks.get(name)
            if mask is None and image is not None:
                survey.faults.append(fault("missing-mask", survey.relative(image), f"no {name}.* in Masks"))
            if image is None and mask is not None and folders.images:
                survey.faults.append(fault("missing-image", survey.relative(mask), f"no {name}.* in Images"))
            survey.cases.append(Case(name, image, mask, group=name, level=folders.level))
    if not survey.cases:
        survey.faults.append(fault("empty-dataset", "."))
    _find_schema(survey)
    levels_of: dict[str, set[str]] = defaultdict(set)
    for case in survey.cases:
        levels_of[case.name].add(case.level)
    _add_rows(survey, levels_of)
    every = set().union(*levels_of.values())
    for name in sorted(levels_of, key=natural):
        for level in sorted(every - levels_of[name], key=level_factor):
            survey.faults.append(fault("missing-level", name, f"not at {level}"))
    survey.cases.sort(key=lambda case: (-level_factor(case.level) if case.level else 0, natural(case.name)))
    return survey


def natural(name: str) -> tuple[list[tuple[int, str] | str], str]:
    """Sorting key under which numbers count: BCC_2 stands before BCC_10.

    >>> sorted(["BCC_10", "BCC_2"], key=natural)
    ['BCC_2', 'BCC_10']
    """
    # Digits compare by their count first: of a very long number Python would make no int.
    texts = re.split(r"([0-9]+)", name)
    numbers = [text.lstrip("0") for text in texts]
    return [(len(numbers[i]), numbers[i]) if i % 2 else text for i, text in enumerate(texts)], name


def _find_layout(root: Path) -> tuple[str, list[Folders]]:
    for base in (root, root / "data"):
        levels = [folder for folder in sorted(base.glob("[1-9]*x")) if re.fullmatch(r"[1-9][0-9]{0,2}x", folder.name)]
        pairs = [Folders(folder.name, _folder(folder, "Images"), _folder(folder, "Masks")) for folder in levels]
        pairs = [pair for pair in pairs if pair.masks.is_dir() or (pair.images and pair.images.is_dir())]
        if any(pair.images and pair.images.is_dir() for pair in pairs):
            return "queensland", pairs
        if pairs:
            return "masks", [pair._replace(images=None) for pair in pairs]
    images, masks = _folder(root, "Images"), _folder(root, "Masks")
    if images.is_dir():
        return "plain", [Folders("", images, masks)]
    if masks.is_dir():
        return "masks", [Folders("", None, masks)]
    if {path.suffix.lower() for path in root.iterdir()} & SUFFIXES == {".png"}:
        return "masks", [Folders("", None, root)]
    archives = sorted(path.name for path in root.iterdir() if path.suffix.lower() in ARCHIVES)
    hint = f"unpack {first_names(archives)} first" if archives else "give the folder that holds Images and Masks"
    raise DataError(f"{root} is not a dataset", got="none of the known layouts", expected=LAYOUTS, hint=hint)


def _folder(base: Path, name: str) -> Path:
    """The folder of this name; ``images`` is taken for ``Images``, as some systems do."""
    if (base / name).is_dir() or not base.is_dir():
        return base / name
    return next((path for path in sorted(base.iterdir()) if path.name.lower() == name.lower()), base / name)


def _scan(survey: Survey, folder: Path) -> dict[str, Path]:
    """Image files of one folder by name; everything that is odd about the folder becomes a fault."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        survey.faults.append(fault("unreadable", survey.relative(folder), f"the folder: {error.strerror}"))
        return {}
    files: dict[str, Path] = {}
    first: dict[str, Path] = {}
    for path in paths:
        survey.faults += _odd_entry(survey, path)
        if path.suffix.lower() not in SUFFIXES or path.name.startswith(".") or not path.is_file():
            continue
        name = one_spelling(path.stem)
        twin = first.setdefault(name.casefold(), path)
        if twin != path:
            survey.faults.append(fault("duplicate-name", survey.relative(path), f"{path.name} beside {twin.name}"))
        files.setdefault(name, path)
    return files


def _odd_entry(survey: Survey, path: Path) -> list[Fault]:
    """What is wrong with one entry of a folder, judged by its name and kind alone."""
    file = survey.relative(path)
    if path.name.startswith(PARTIAL):
        return [fault("partial-file", file, "passed over")]
    if path.name.startswith("."):
        return [fault("other-file", file, "a hidden file")]
    if path.suffix.lower() not in SUFFIXES or path.is_dir():
        known = path.parent == survey.root and path.name in {CLASSES, CASES}
        return [] if known else [fault("other-file", file, "a folder" if path.is_dir() else f"a {path.suffix} file")]
    if not path.is_file():
        return [fault("unreadable", file, "a broken link" if path.is_symlink() else "no regular file")]
    faults = [] if is_good_name(path.stem) else [fault("odd-name", file, repr(path.name))]
    inside = path.resolve().is_relative_to(survey.root.resolve())
    return faults if inside else [*faults, fault("outside-link", file, str(path.resolve()))]


def _find_schema(survey: Survey) -> None:
    path = survey.root / CLASSES
    if path.exists():
        try:
            survey.schema = read_schema(path)
        except NtrmError as error:
            survey.faults.append(fault_of(error, "bad-classes", CLASSES))
    elif survey.layout == "queensland" or (survey.layout == "masks" and _is_rgb(survey.cases)):
        survey.schema = SKIN
    else:
        hint = "write it; for one level of the skin dataset give the folder above the level instead"
        survey.faults.append(fault("bad-classes", CLASSES, "no such file", hint=hint))


def _is_rgb(cases: list[Case]) -> bool:
    """Whether the first mask that can be opened is RGB, and thus says by its colours what it shows."""
    for case in cases:
        try:
            return case.mask is not None and read_header(case.mask).pixels == RGB8
        except DataError:
            continue
    return False


def _add_rows(survey: Survey, levels_of: Mapping[str, set[str]]) -> None:
    """Give every case its patient, split, cancer type and µm/px."""
    rows: dict[str, Case] = {}
    names, plain = {case.name for case in survey.cases}, survey.layout == "plain"
    path = next((base / CASES for base in (survey.root, survey.root / "data") if (base / CASES).exists()), None)
    if path is not None:
        try:
            rows, faults = read_cases(path, mpp_needed=plain)
        except DataError as error:
            survey.faults.append(fault_of(error, "bad-cases", CASES))
        else:
            missing, surplus = sorted(names - rows.keys(), key=natural), sorted(rows.keys() - names, key=natural)
            faults += [fault("bad-cases", CASES, f"no row for {name}") for name in missing]
            faults += [fault("bad-cases", CASES, f"row {name!r} without a file") for name in surplus]
            faults += [fault("odd-name", CASES, repr(name)) for name in surplus if name and not is_good_name(name)]
            survey.faults += faults
    elif plain:
        survey.faults += [fault(code, CASES, "no such file") for code in ("bad-cases", "no-mpp")]
    for name, stated in rows.items():
        known = sorted(level_resolution(level) for level in levels_of.get(name, set()) - {""})
        if stated.resolution and known and not any(stated.resolution.same_as(level) for level in known):
            found = f"{name}: {stated.resolution}, in a folder of {' or '.join(map(str, known))}"
            expected, hint = "the µm/px of the folder, or none", "empty mpp; other µm/px belong into the layout plain"
            survey.faults.append(fault("bad-cases", CASES, found, expected=expected, hint=hint))
    for place, case in enumerate(survey.cases):
        resolution = level_resolution(case.level) if case.level else None
        facts: dict[str, Any] = {"group": patient_of(case.name), "cancer": cancer_of(case.name)}
        if row := rows.get(case.name):
            facts |= {"group": row.group, "split": row.split, "slide_sha256": row.slide_sha256}
            facts["cancer"], resolution = row.cancer or facts["cancer"], resolution or row.resolution
        survey.cases[place] = replace(case, resolution=resolution, **facts)
    if survey.layout == "masks" and any(case.resolution is None for case in survey.cases):
        survey.faults.append(fault("no-mpp", CASES, "masks without µm/px: enough for statistics", severity="note"))


def open_dataset(root: str | Path, *, resolution: str | None = None, splits: str | Path | None = None) -> Dataset:
    """Cases of a dataset folder, with patient, split and µm/px; no image is decoded.

    ``resolution`` (``10x``) keeps one folder of the queensland layout. ``splits`` is an existing split file (as
    ``read_split`` reads it) whose splits replace those of the dataset; names it has beyond the dataset's do not matter.
    What cannot be used safely is refused, with the first faults named.
    """
    survey = survey_dataset(Path(root))
    levels = {case.level for case in survey.cases}
    if resolution is not None and resolution not in levels:
        if not levels - {""}:
            hint = "leave --resolution out"
            raise UsageError(f"{root} has no resolution levels", got=resolution, expected="none", hint=hint)
        raise choices_error(f"no such resolution in {root}", resolution, sorted(levels))
    others = levels - {resolution} if resolution else set()
    faults = [each for each in survey.faults if each.severity == "fault" and not others & {*Path(each.file).parts}]
    cases = tuple(case for case in survey.cases if resolution in (None, case.level))
    if splits is not None:
        faults = [finding for finding in faults if finding.code != "patient-split"]
    if faults or survey.schema is None:
        # Where nothing is damaged, going on would mean guessing, or testing on patients that were trained on.
        refused = all(finding.code in ("no-mpp", "patient-split") for finding in faults)
        raise (RefusedError if refused else DataError)(
            f"{root} cannot be used as a dataset",
            got=listed([f"{finding.file}: {finding.title} ({finding.found})" for finding in faults]),
            expected=faults[0].expected,
            hint=f"run `ntrm data check {root}` for all faults and how to fix them",
        )
    dataset = Dataset(root=survey.root, layout=survey.layout, schema=survey.schema, cases=cases)
    if splits is None:
        return dataset
    from ntrm.data.split import read_split

    return read_split(Path(splits)).apply(dataset)
