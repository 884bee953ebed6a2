"""The dataset of the bundled model has no section of the test part."""

import pytest
from research.train_bundled import together

from ntrm.data.layouts import open_dataset
from ntrm.phantom.generate import PhantomOptions, write_phantom


@pytest.mark.slow
def test_two_phantoms_become_one_dataset_without_the_test_part(tmp_path):
    for name, options in (("first", PhantomOptions(3, 1)), ("second", PhantomOptions(1, 5, version="2"))):
        write_phantom(tmp_path / name, options)
    splits = {case.name: case.split for case in open_dataset(tmp_path / "first").cases}
    assert "test" in splits.values()
    found = open_dataset(together(tmp_path / "out", tmp_path / "first", [tmp_path / "second"])).cases
    (drawn,) = (case.name for case in open_dataset(tmp_path / "second").cases)
    kept = {f"0-{name}": split for name, split in splits.items() if split != "test"}
    assert {case.name: case.split for case in found} == {**kept, f"1-{drawn}": "train"}
    assert all(case.mask is not None for case in found)
