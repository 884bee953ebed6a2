import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import LabelSchema
from ntrm.data.split import open_splits
from ntrm.paper import facts
from ntrm.paper.facts import check_room, choose_levels, expect_facts, gather_facts, is_phantom, recall_facts
from ntrm.training.recipe import load_recipe

RECIPE = load_recipe("fast", {"window": 64, "overlap": 0})


def test_counts_are_those_of_the_files(stripes, tmp_path):
    parts = open_splits(stripes, resolution="10x")
    found = gather_facts(parts, "10x", RECIPE, tmp_path / "10x.json")
    assert found.sections == {"train": 2, "val": 1, "test": 2}
    assert found.patients == {"train": 2, "val": 1, "test": 2}
    assert found.pixels == {"train": 2 * 96 * 128, "val": 96 * 128, "test": 2 * 96 * 128}
    # Windows of 64 cover 96 × 128 pixels two by two.
    assert found.windows["train"] == 2 * 4
    assert found.fingerprint == parts.fingerprint()
    assert found.mpp == pytest.approx(6.7)
    assert not found.phantom


def test_what_is_known_is_not_read_again_until_a_file_changes(stripes, tmp_path, monkeypatch):
    data, memory = tmp_path / "data", tmp_path / "10x.json"
    shutil.copytree(stripes, data)
    first = gather_facts(open_splits(data, resolution="10x"), "10x", RECIPE, memory)
    monkeypatch.setattr(facts, "_count", None)
    assert gather_facts(open_splits(data, resolution="10x"), "10x", RECIPE, memory) == first
    dataset = open_splits(data, resolution="10x").dataset
    assert recall_facts(memory, dataset, load_recipe("fast", {"window": 32, "overlap": 0})) is None
    swapped = [replace(tissue, rgb=(tissue.index, 0, 0)) for tissue in dataset.schema.tissues]
    assert recall_facts(memory, replace(dataset, schema=LabelSchema(tuple(swapped))), RECIPE) is None
    assert recall_facts(memory, dataset, RECIPE) == first
    image = data / "10x" / "Images" / "BCC_1.tif"
    image.write_bytes(image.read_bytes() + b"\0")
    assert recall_facts(memory, dataset, RECIPE) is None
    memory.write_text(json.dumps({"stamp": 1})[:-3])
    assert recall_facts(memory, dataset, RECIPE) is None


def test_levels_are_those_wanted_coarsest_first(stripes):
    assert choose_levels(stripes, ()) == ("10x", "5x")
    assert choose_levels(stripes, ("5x",)) == ("5x",)
    with pytest.raises(UsageError, match="no such resolution"):
        choose_levels(stripes, ("2x",))


def test_headers_tell_the_same_as_the_sections(stripes, tmp_path):
    parts = open_splits(stripes, resolution="5x")
    expected = expect_facts(parts, "5x", RECIPE, tmp_path / "5x.json")
    assert not any(tmp_path.iterdir())
    assert expected == gather_facts(parts, "5x", RECIPE, tmp_path / "5x.json")


def test_every_section_that_cannot_be_read_is_named_at_once(stripes, tmp_path):
    data, memory = tmp_path / "data", tmp_path / "10x.json"
    shutil.copytree(stripes, data)
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(data / "10x" / "Masks" / "BCC_1.png")
    with pytest.raises(DataError, match="differ in size"):
        gather_facts(open_splits(data, resolution="10x"), "10x", RECIPE, memory)
    Image.fromarray(np.full((96, 128, 3), 77, dtype=np.uint8)).save(data / "10x" / "Masks" / "SCC_9.png")
    with pytest.raises(DataError, match=r"2 sections .* cannot be used\n.*BCC_1(.|\n)*SCC_9(.|\n)*ntrm data check"):
        gather_facts(open_splits(data, resolution="10x"), "10x", RECIPE, memory)
    assert not memory.exists()


def test_a_disk_that_is_too_small_is_refused_before_anything_is_read(stripes, tmp_path, monkeypatch):
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "cache"))
    # Five sections of 96 × 128 pixels at 10x, four bytes a pixel.
    parts = [open_splits(stripes, resolution=level).dataset for level in ("10x", "5x")]
    monkeypatch.setattr(facts.shutil, "disk_usage", lambda folder: SimpleNamespace(free=5 * 96 * 128 * 4))
    check_room(parts[:1])
    with pytest.raises(DataError, match="too small") as refused:
        check_room(parts)
    assert refused.value.expected == "0.0 GB for 10 images"
    assert not (tmp_path / "cache").exists()


def test_a_part_without_sections_is_refused(stripes, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(stripes, data)
    cases = data / "cases.csv"
    cases.write_text(cases.read_text().replace(",val,", ",train,"))
    with pytest.raises(UsageError, match="an empty split"):
        gather_facts(open_splits(data, resolution="10x"), "10x", RECIPE, tmp_path / "10x.json")


def test_a_phantom_is_told_by_its_truth(stripes, tmp_path):
    assert not is_phantom(stripes)
    (tmp_path / "truth.json").write_text("{}")
    assert is_phantom(tmp_path)
