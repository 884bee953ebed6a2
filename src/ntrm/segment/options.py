"""Options of a segmentation, and the run that they make with a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ntrm.core.errors import RefusedError, UsageError, check_number, choices_error, plain_fields, plain_number
from ntrm.data.stains import AS_IT_IS, MACENKO, STAIN_NORMS, Stains
from ntrm.familiarity.loaded_model import LoadedModel
from ntrm.familiarity.reference import Reference
from ntrm.models.predictor import Predictor
from ntrm.models.windows import Stitching
from ntrm.results.manifest import Manifest


@dataclass(frozen=True)
class Options:
    """What a user may choose that changes results."""

    tissue_mask: bool = True  # Leave out glass; without, every window is predicted
    strict: bool = False  # Refuse slides of poor quality, and those unlike what the model knows, instead of warning
    overlap: int | None = None  # Pixels that windows share; a quarter of the window if None
    simplify_um: float | None = None  # Simplify polygons by at most this; exact pixel edges if None
    gzip: bool = False  # Compress the polygons
    zarr: bool = False  # Also write labels.zarr.
    maps: bool = False  # Also write confidence.ome.tif and, where the network has a coarse head, coarse.ome.tif.
    probabilities: bool = False  # Also write probabilities.zarr.
    report: bool = True  # Write report.html; it only repeats other files, and so is not part of a run's identity.
    min_area_um2: float = 0.0
    """Smaller regions are relabelled as what lies around them; 0 leaves all as the network has them."""
    stain_norm: str = AS_IT_IS
    """How a slide's stains are brought to those of the training sections before the network sees it, if at all."""

    def __post_init__(self) -> None:
        if self.simplify_um is not None:
            check_number("simplification in µm", self.simplify_um, 0, 1000)
        # Larger regions are not small: this is ten times the stray spot of tumour that is not measured.
        check_number("least area in µm²", self.min_area_um2, 0, 20_000)
        if self.stain_norm not in STAIN_NORMS:
            raise choices_error("unknown stain normalisation", self.stain_norm, STAIN_NORMS)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool) and not isinstance(value, bool):
                # "no" would be taken for yes.
                raise UsageError(f"{field.name} is a switch", got=repr(value), expected="True or False")
        plain_fields(self)
        # 64 and 64.0 are one option, and must look alike in every output.
        object.__setattr__(self, "min_area_um2", float(self.min_area_um2))

    @property
    def lasting(self) -> dict[str, Any]:
        """Those that all results of a folder have in common."""
        # Without stain normalisation, results are as they were before it was an option.
        without = {"report"} | ({"stain_norm"} if self.stain_norm == AS_IT_IS else set())
        return {key: value for key, value in asdict(self).items() if key not in without}

    def stitching(self, window: int) -> Stitching:
        """Windows of the network's own size."""
        return Stitching(window) if self.overlap is None else Stitching(window, self.overlap)


def wanted_stains(reference: Reference | None, method: str) -> Stains:
    """The stains of the training sections; refuses a model that does not tell them, since they are never guessed."""
    stains = None if reference is None else reference.stains
    if stains is None or (method == MACENKO and stains.vectors is None):
        got = "no reference" if reference is None else "a reference without stains" if stains is None else "one stain"
        raise RefusedError(
            "the model does not say how its training sections are stained",
            got=got,
            expected="the stains of its training sections, in its reference",
            hint="make the reference with `ntrm calibrate --model M --data DATA`, or segment without --stain-norm",
        )
    return stains


def run_of(subject: LoadedModel, predictor: Predictor, options: Options) -> Manifest:
    """All that decides the bytes of the results; batch and precision change how a network rounds."""
    config, known = subject.config, subject.as_dict()
    model = {key: known[key] for key in ("name", "arch", "version", "sha256", "mpp", "window", "temperature")}
    # What a slide is compared with decides what is said about its cancers.
    model["reference_sha256"] = None if subject.reference is None else subject.reference.sha256
    if options.stain_norm != AS_IT_IS:
        model["stains"] = wanted_stains(subject.reference, options.stain_norm).as_dict()
    chosen = {
        **options.lasting,
        **options.stitching(config.window).as_dict(),
        "device": predictor.device.type,
        "precision": str(predictor.precision).removeprefix("torch."),
        "batch": plain_number(predictor.batch),
    }
    return Manifest(model=model, options=chosen, classes=config.schema.names)
