"""Every fault a dataset can have: its code, what it means, what is expected and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ntrm.core.errors import DataError

Severity = Literal["fault", "note"]


@dataclass(frozen=True)
class Kind:
    """What all faults of one code have in common."""

    title: str
    expected: str
    hint: str
    severity: Severity = "fault"


KINDS: dict[str, Kind] = {
    "empty-dataset": Kind("no image and no mask", "at least one section", "put the files where the layout has them"),
    "missing-image": Kind("mask without an image", "an image of the same name", "add the image, or remove the mask"),
    "missing-mask": Kind("image without a mask", "a mask of the same name", "add the mask, or remove the image"),
    "size-mismatch": Kind(
        "image and mask differ in size", "the same height and width", "export the mask again at the image's size"
    ),
    "unreadable": Kind("cannot be read", "a sound PNG, JPEG or TIFF file", "copy or export the file again"),
    "truncated": Kind("ends too early", "a complete file", "copy the file again; the transfer was cut short"),
    "exchanged": Kind(
        "image and mask are exchanged",
        "the photograph in Images, the mask in Masks",
        "exchange the files; if it is so with all, exchange the names of the two folders",
    ),
    "not-rgb8": Kind(
        "image is not 8-bit RGB", "8-bit RGB", "convert the image to 8-bit RGB; if it is a mask, exchange it"
    ),
    "mask-format": Kind(
        "mask is neither RGB nor indexed",
        "8-bit RGB, or 8-bit indexed, stored without loss",
        "export the mask as an 8-bit RGB or indexed PNG",
    ),
    "several-pages": Kind(
        "a stack of several images, of which only the first would be read",
        "one image; smaller pages behind it are taken for its pyramid",
        "save the image that is meant as a file of its own",
    ),
    "palette-order": Kind(
        "the colours of an indexed mask contradict its indices",
        "index and palette colour of the same class",
        "save the mask as RGB, or index it in the order of the classes",
    ),
    "stray-colours": Kind(
        "too many pixels of unknown colours",
        "at most 1 % of the pixels outside the palette",
        "export the mask without anti-aliasing or lossy compression, or list its colours in classes.csv",
    ),
    "index-range": Kind(
        "mask has indices that no class has",
        "the indices of the classes, or 255 for ignore",
        "list the missing classes in classes.csv, or renumber the mask",
    ),
    "empty-mask": Kind("mask is ignore everywhere", "at least one labelled pixel", "annotate the section or remove it"),
    "background-only": Kind("mask is all background", "at least one tissue", "annotate the section or remove it"),
    "duplicate-name": Kind(
        "two files for one name", "one file per name, also where case is ignored", "remove or rename one of them"
    ),
    "odd-name": Kind(
        "name with odd characters",
        "a letter, digit or underscore first, no dot or space last, and no / \\ : ; * ? quote, angle bracket or bar",
        "rename the file, and its row in cases.csv",
    ),
    "too-large": Kind("more pixels than the limit", "an image within the limit", "tile the image or raise the limit"),
    "patient-split": Kind(
        "a patient in two splits",
        "all sections of one patient in one split",
        "correct the split column, or empty it and split again with `ntrm data split`",
    ),
    "missing-split": Kind(
        "a split without sections",
        "sections in train, val and test",
        "give some patients that split, or empty the column and split again with `ntrm data split`",
        "note",
    ),
    "binary-masks": Kind(
        "no value but 0 and 255 in all masks",
        "the numbers of the classes, and 255 where a pixel is to be ignored",
        "write the number of the second class in place of 255; or leave it, if only the first one was drawn",
        "note",
    ),
    "no-mpp": Kind(
        "no usable µm per pixel",
        "a number between 0.05 and 100 in the mpp column of cases.csv",
        "look the scan resolution up in the scanner's metadata; it is never guessed",
    ),
    "bad-cases": Kind(
        "cases.csv does not fit", "columns name,group,split and one row per section", "correct cases.csv"
    ),
    "bad-classes": Kind("classes.csv does not fit", "columns index,name,r,g,b, numbered from 0", "correct classes.csv"),
    "level-mismatch": Kind(
        "sizes of two resolutions disagree",
        "sizes in the ratio of the downsample factors, within a pixel or 1 %",
        "derive the coarser level again with `ntrm data resample`",
    ),
    "missing-level": Kind(
        "section lacks one of the resolutions",
        "every section at every resolution",
        "derive it with `ntrm data resample`, or leave it",
        "note",
    ),
    "partial-file": Kind(
        "unfinished file of a running or killed writer", "finished files", "wait for the writer or delete it", "note"
    ),
    "other-file": Kind("neither image nor mask, passed over", "PNG, JPEG or TIFF files", "move it elsewhere", "note"),
    "outside-link": Kind(
        "link to a file outside the dataset",
        "files inside the dataset",
        "copy the file if the dataset is to be moved",
        "note",
    ),
}
"""All codes, in the order in which reports list them."""


@dataclass(frozen=True)
class Fault:
    """One fault (or note, which does not make a dataset unclean) of one file; ``file`` is relative to the dataset.

    >>> fault("missing-mask", "Images/a.tif").hint
    'add the mask, or remove the image'
    """

    code: str
    file: str
    found: str
    expected: str
    hint: str
    severity: Severity = "fault"

    @property
    def title(self) -> str:
        """What the code means."""
        return KINDS[self.code].title


def fault(
    code: str,
    file: str | Path,
    found: str = "",
    *,
    expected: str = "",
    hint: str = "",
    severity: Severity | None = None,
) -> Fault:
    """Fault of a known code; empty fields take the texts of the code."""
    kind = KINDS[code]
    return Fault(
        code=code,
        file=printable(str(file)),
        found=printable(found or kind.title),
        expected=expected or kind.expected,
        hint=hint or kind.hint,
        severity=severity or kind.severity,
    )


def printable(text: str) -> str:
    r"""Text in which control characters and broken Unicode are escaped, safe for terminals and JSON.

    >>> printable("a\x1b[31m\udcff.png")
    'a\\x1b[31m\\udcff.png'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class FaultError(DataError):
    """A file that cannot be used, with the code under which ``ntrm data check`` reports it."""

    def __init__(self, code: str, path: Path, found: str = "", expected: str = "", hint: str = "") -> None:
        self.fault = fault(code, path, found, expected=expected, hint=hint)
        what = f"{self.fault.file}: {self.fault.title}"
        super().__init__(what, got=self.fault.found, expected=self.fault.expected, hint=self.fault.hint)
        self._arguments = (code, path, found, expected, hint)

    def __reduce__(self) -> tuple[object, ...]:
        return FaultError, self._arguments
