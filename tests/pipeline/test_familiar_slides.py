"""Slides judged by the reference in their model's folder."""

import csv
import shutil

import numpy as np
import pytest
from tests.familiarity import small
from tests.pipeline.small import BKG, fingerprints, paint

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import sha256_of
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image
from ntrm.data.split import open_splits
from ntrm.familiarity.build import build_reference
from ntrm.inference.checkpoints import Checkpoints
from ntrm.inference.mask_store import BandStore
from ntrm.inference.predictor import Predictor
from ntrm.pipeline.batch import segment_slides
from ntrm.results.familiarity import FAMILIAR, NO_REFERENCE, UNFAMILIAR
from ntrm.results.paths import FAMILIARITY_MAP

pytestmark = pytest.mark.usefixtures("quick_readers", "by_colour")


@pytest.fixture(scope="module")
def by_colour():
    """The network ``by-colour`` can be loaded."""
    with pytest.MonkeyPatch.context() as patch:
        small.register(patch)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory, by_colour):
    """A model's folder with a reference of painted sections; no test changes it."""
    folder = tmp_path_factory.mktemp("model")
    data = small.write_skin(folder / "data", np.random.default_rng(1))
    network = small.make_network()
    network.save_pretrained(folder / "model")
    reference = build_reference(Predictor(network, "cpu", batch=8), open_splits(data))
    reference.write(folder / "model", sha256_of(folder / "model" / "model.safetensors"))
    return folder / "model"


@pytest.fixture
def mask(random):
    """Of two pieces."""
    return paint(random, pieces=2)


@pytest.fixture
def slide(tmp_path, mask, random):
    return write(tmp_path / "in" / "a.tif", small.stained(mask, random))


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_image(path, pixels, Resolution.square(small.MPP))
    return path


def run(slide, out, model, **options):
    return segment_slides(slide, out=out, model=model, device="cpu", batch=3, **options)


def row_of(out):
    with (out / "slides.csv").open(newline="", encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream)
    return row


def test_an_inverted_copy_is_unfamiliar_and_the_section_is_not(tmp_path, slide, mask, model, random):
    # Only the tissue: a slide of black glass would not even be taken for one.
    pixels = small.stained(mask, random)
    inverted = write(tmp_path / "inverted" / "a.tif", np.where((mask == BKG)[..., None], pixels, 255 - pixels))
    run(slide, tmp_path / "plain", model)
    run(inverted, tmp_path / "strange", model)
    plain, strange = row_of(tmp_path / "plain"), row_of(tmp_path / "strange")
    assert (plain["familiarity"], plain["cancer_SCC"]) == (FAMILIAR, "true")
    assert (strange["familiarity"], strange["cancer_SCC"]) == (UNFAMILIAR, "not assessed")
    assert float(strange["familiarity_p"]) < 0.01 <= float(plain["familiarity_p"])
    assert "unlike what the model knows" in strange["warnings"]
    assert "colours: " in strange["warnings"]


def test_every_piece_is_judged_and_a_map_shows_where(tmp_path, slide, model):
    run(slide, tmp_path / "out", model)
    with (tmp_path / "out" / "pieces.csv").open(newline="", encoding="utf-8") as stream:
        pieces = list(csv.DictReader(stream))
    assert [piece["familiarity"] for piece in pieces] == [FAMILIAR, FAMILIAR]
    assert (tmp_path / "out" / "a" / FAMILIARITY_MAP).is_file()


def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path, slide, model, monkeypatch):
    run(slide, tmp_path / "whole", model)
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    append, calls = BandStore.append, iter(range(99))

    def failing(self, *arguments):
        if next(calls) == 3:
            raise KeyboardInterrupt
        append(self, *arguments)

    monkeypatch.setattr(BandStore, "append", failing)
    with pytest.raises(KeyboardInterrupt):
        run(slide, tmp_path / "killed", model)
    assert any((tmp_path / "killed").rglob("checkpoint-*.bin"))
    run(slide, tmp_path / "killed", model)
    assert fingerprints(tmp_path / "killed") == fingerprints(tmp_path / "whole")
    assert row_of(tmp_path / "killed")["familiarity"] == FAMILIAR


def test_a_model_without_a_reference_measures_the_same_and_says_that_it_has_none(tmp_path, slide, model):
    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    for path in bare.glob("reference.*"):
        path.unlink()
    run(slide, tmp_path / "with", model)
    run(slide, tmp_path / "without", bare)
    judged, plain = row_of(tmp_path / "with"), row_of(tmp_path / "without")
    assert (plain["familiarity"], plain["familiarity_p"]) == (NO_REFERENCE, "")
    differing = {key for key in plain if plain[key] != judged[key]}
    assert all("familiarity" in key for key in differing)
    for name in ("mask.ome.tif", "overlay.png"):
        (one,), (other,) = (list((tmp_path / out).rglob(name)) for out in ("with", "without"))
        assert one.read_bytes() == other.read_bytes()


def test_a_damaged_reference_is_refused_before_anything_is_done(tmp_path, slide, model):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    path = broken / "reference.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="ntrm calibrate"):
        run(slide, tmp_path / "out", broken)
    assert not (tmp_path / "out").exists()


def test_results_of_another_reference_are_not_mixed(tmp_path, slide, model):
    run(slide, tmp_path / "out", model)
    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    (bare / "reference.json").unlink()
    with pytest.raises(RefusedError):
        run(slide, tmp_path / "out", bare)
