"""What a network is trained on: a dataset, corrected slides, or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ntrm.core.errors import RefusedError, UsageError, first_names
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.progress import SILENT, Progress
from ntrm.data.dataset import Dataset
from ntrm.data.split import DatasetSplits, Split, SplitRow, few_sections, open_splits, section_hashes, trained_on
from ntrm.data.tensors import TileDataset
from ntrm.models.config import ModelConfig
from ntrm.training.recipe import Recipe
from ntrm.training.run import CORRECTED_DATA

MOST_TIMES = 64  # How often a window of a corrected slide may occur in an epoch


class CorrectedSlides(Protocol):
    """Corrected slides to train on, such as ``ntrm.correct.dataset.CorrectedResults``."""

    @property
    def resolution(self) -> Resolution:
        """µm/px of their masks."""

    def write(self, out: Path, schema: LabelSchema | None, progress: Progress) -> dict[str, Any]:
        """Write them as a dataset, with these classes; returns which versions of which corrections they are."""


@dataclass(frozen=True)
class TrainingData:
    """Sections to learn from, those to validate on, and where they come from."""

    splits: DatasetSplits  # Everything, divided so that no patient is in two splits
    training: Dataset | None  # Annotated sections
    corrected: Dataset | None = None  # Corrected slides, in which most pixels are ignored
    validation: Dataset | None = None  # None: there is nothing to validate on
    chooses: bool = True  # Whether weights may be chosen by the validation
    record: Mapping[str, Any] | None = field(default=None, repr=False)  # Which versions of which corrections

    def windows(self, recipe: Recipe, progress: Progress = SILENT) -> TileDataset:
        """Windows to learn from. Beside a dataset, those of corrected slides make up about half of them.

        Nothing is learned where nothing is annotated: on a slide with a few areas those would be most of the windows.
        """
        cut, known = partial(TileDataset, size=recipe.window, overlap=recipe.overlap, drop_unknown=True), None
        if self.training is not None:
            known = cut(self.training, drop_background=recipe.drop_background, progress=progress)
        if self.corrected is None:
            if known is None:
                raise RefusedError(f"{self.splits.dataset.root}: nothing to train on")
            return known
        corrected = cut(self.corrected, progress=progress)
        if known is None:
            return corrected
        return known.joined(corrected, times=min(max(1, round(len(known) / len(corrected))), MOST_TIMES))

    def hashes(self) -> set[str]:
        """Short hashes of the images to learn from, and of the slides that they were cut from."""
        return set().union(*map(section_hashes, (*(self.training or ()), *(self.corrected or ()))))


def open_training_data(
    data: Path | None,
    out: Path,
    *,
    resolution: str | None = None,
    splits: Path | None = None,
    sections: int | None = None,
    corrections: CorrectedSlides | None = None,
    mpp: float | None = None,
    progress: Progress = SILENT,
) -> TrainingData:
    """Open a dataset, and write corrected slides as one into the run's folder ``out``.

    ``mpp`` is that of the model to start from, which corrected slides must have; with a dataset they must have its.
    """
    if data is None and corrections is None:
        raise UsageError("nothing to train on", expected="--data DIR, --corrections RESULTS, or both")
    known = None if data is None else open_splits(data, resolution=resolution, splits=splits)
    if corrections is None and known is not None:
        training = _split(known, "train")
        training = training if sections is None else few_sections(training, sections)
        return TrainingData(known, training, validation=_split(known, "val"))
    if corrections is None or sections is not None or (data is None and splits is not None):
        raise UsageError(
            "with --corrections all corrected slides are trained on",
            got="--sections" if sections is not None else "--splits without --data",
            hint="leave it out; a column split in the table of `ntrm segment` says which slides validate",
        )
    return _with_corrections(known, out / CORRECTED_DATA, corrections, mpp, progress)


def _with_corrections(
    known: DatasetSplits | None, folder: Path, corrections: CorrectedSlides, mpp: float | None, progress: Progress
) -> TrainingData:
    wanted = known.resolution if known is not None else None if mpp is None else Resolution.square(mpp)
    if wanted is not None and not corrections.resolution.same_as(wanted):
        raise RefusedError(
            "the corrected slides have other µm/px",
            got=str(corrections.resolution),
            expected=f"{wanted}, as {'the dataset' if known is not None else 'the model to start from'}",
            hint="segment and correct the slides with the model that is to learn from them",
        )
    record = corrections.write(folder, None if known is None else known.schema, progress)
    both = corrected = open_splits(folder)
    own = {case.split for case in corrected.dataset}
    if "train" not in own:
        raise RefusedError("no corrected slide is for training", got=f"only {', '.join(sorted(filter(None, own)))}")
    if known is not None:
        twice = sorted({case.name for case in known.dataset} & {case.name for case in corrected.dataset})
        if twice:
            raise RefusedError(
                "a corrected slide has the same name as a section of the dataset",
                got=first_names(twice),
                hint="a section of the dataset needs no correction; "
                "another one may get a slide_id in a table of slides",
            )
        cases = (*known.dataset, *corrected.dataset)
        Split(tuple(SplitRow(case.name, case.group, case.split or "train") for case in cases))  # no patient in two
        both = replace(known, dataset=replace(known.dataset, cases=cases))
    # Patients stay with the data: the run's provenance may be given away with the model.
    slides = [{key: value for key, value in slide.items() if key != "group"} for slide in record["slides"]]
    # What old sections say would choose the start: it knows them best.
    return TrainingData(
        both,
        chooses="val" in own,
        training=None if known is None else _split(known, "train"),
        corrected=corrected["train"],
        validation=both["val"] if any(case.split == "val" for case in both.dataset) else None,
        record={**record, "slides": slides},
    )


def _split(splits: DatasetSplits, split: str) -> Dataset:
    if not any(case.split == split for case in splits.dataset):
        raise RefusedError(
            f"{splits.dataset.root}: no section is in the split {split}",
            got=f"{len(splits.dataset)} sections",
            hint="write splits with `ntrm data split` and give them with --splits",
        )
    return splits[split]


def selection(recipe: Recipe, given: TrainingData, start: ModelConfig | None, say: Callable[[str], None]) -> Recipe:
    """The recipe; without data to choose weights by, it keeps the last ones. Says what is doubtful about the choice."""
    if given.record is not None:
        pixels, slides = Counter[str](), given.record["slides"]
        for slide in slides:
            pixels.update(slide["pixels"])
        forgotten = [name for name in given.splits.schema.names if not pixels[name]] if given.training is None else []
        may_forget = f"; nothing keeps the network from forgetting {', '.join(forgotten)}" if forgotten else ""
        count = f"corrected slides: {len(slides)}; pixels that count: {pixels.total():,}"
        say(f"{count}, of {', '.join(sorted(pixels))}{may_forget}")
        if (trust := given.record.get("trust")) != "all":
            say(
                f"--trust {trust} learns from corrected places alone, which made models worse than before when it "
                "was measured; --trust all learns from whole corrected masks"
            )
    seen = trained_on(start.trained_on, given.validation) if start is not None and given.validation is not None else ""
    if seen:
        say(
            f"{seen} of the validation part: scores are too good for other sections, those of the start most of all; "
            "validate on sections that it has not seen (--splits)"
        )
    if given.chooses:
        return recipe
    if given.validation is None and (recipe.schedule == "plateau" or recipe.early_stopping is not None):
        raise UsageError(
            "there is nothing to validate on",
            got=f"recipe {recipe.name}, which goes by the validation loss",
            expected="recipe finetune, or another of a fixed length",
            hint="put some corrected slides into the split val, by a column split in the table of `ntrm segment`",
        )
    say("no corrected slide is for validation: no model selection, the weights of the last step are kept")
    return replace(recipe, keep="last")
