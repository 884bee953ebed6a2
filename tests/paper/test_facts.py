import shutil

import numpy as np
import pytest
from PIL import Image

from ntrm.core.errors import DataError, UsageError
from ntrm.data.split import open_splits
from ntrm.paper.facts import choose_levels, gather_facts, is_phantom
from ntrm.training.recipe import load_recipe

RECIPE = load_recipe("fast", {"window": 64, "overlap": 0})


def test_counts_are_those_of_the_files(stripes):
    parts = open_splits(stripes, resolution="10x")
    found = gather_facts(parts, "10x", RECIPE)
    assert found.sections == {"train": 2, "val": 1, "test": 2}
    assert found.patients == {"train": 2, "val": 1, "test": 2}
    assert found.pixels == {"train": 2 * 96 * 128, "val": 96 * 128, "test": 2 * 96 * 128}
    # Windows of 64 cover 96 × 128 pixels two by two.
    assert found.windows["train"] == 2 * 4
    assert found.fingerprint == parts.fingerprint()
    assert found.mpp == pytest.approx(6.7)
    assert not found.phantom


def test_levels_are_those_wanted_coarsest_first(stripes):
    assert choose_levels(stripes, ()) == ("10x", "5x")
    assert choose_levels(stripes, ("5x",)) == ("5x",)
    with pytest.raises(UsageError, match="no such resolution"):
        choose_levels(stripes, ("2x",))


def test_every_section_that_cannot_be_read_is_named_at_once(stripes, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(stripes, data)
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(data / "10x" / "Masks" / "BCC_1.png")
    with pytest.raises(DataError, match="differ in size"):
        gather_facts(open_splits(data, resolution="10x"), "10x", RECIPE)
    Image.fromarray(np.full((96, 128, 3), 77, dtype=np.uint8)).save(data / "10x" / "Masks" / "SCC_9.png")
    with pytest.raises(DataError, match=r"2 sections .* cannot be used\n.*BCC_1(.|\n)*SCC_9(.|\n)*ntrm data check"):
        gather_facts(open_splits(data, resolution="10x"), "10x", RECIPE)


def test_a_part_without_sections_is_refused(stripes, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(stripes, data)
    cases = data / "cases.csv"
    cases.write_text(cases.read_text().replace(",val,", ",train,"))
    with pytest.raises(UsageError, match="an empty split"):
        gather_facts(open_splits(data, resolution="10x"), "10x", RECIPE)


def test_a_phantom_is_told_by_its_truth(stripes, tmp_path):
    assert not is_phantom(stripes)
    (tmp_path / "truth.json").write_text("{}")
    assert is_phantom(tmp_path)
