"""A split as a file."""

import pytest

from ntrm.core.errors import RefusedError
from ntrm.data.split import Split, SplitRow, read_split


def test_a_patient_in_two_splits_is_named():
    with pytest.raises(RefusedError, match="patient p ") as caught:
        Split((SplitRow("a", "p", "train"), SplitRow("b", "p", "val")))
    assert caught.value.got == "a in train and b in val"


def test_patients_that_read_like_formulas_come_back_as_they_were(tmp_path):
    rows = [SplitRow("a", "=1+1", "train", "@x"), SplitRow("b", "-12", "val"), SplitRow("c", "'=1+1", "test")]
    Split(tuple(rows)).write(tmp_path / "split.csv")
    assert [*read_split(tmp_path / "split.csv").rows] == rows
    lines = (tmp_path / "split.csv").read_text().splitlines()
    assert lines[1:] == ["a,'=1+1,train,'@x", "b,-12,val,", "c,''=1+1,test,"]
