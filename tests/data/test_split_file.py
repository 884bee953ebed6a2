"""A split as a file."""

import pytest

from ntrm.core.errors import DataError, RefusedError, UsageError
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,fold\na,1\n", "columns"),
        ("name,split\na,training\n", "unknown split"),
        ("name,split\na,train\na,train\n", "twice"),
        ("", "columns"),
    ],
)
def test_files_that_are_no_split_are_refused(tmp_path, text, message):
    (tmp_path / "split.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_split(tmp_path / "split.csv")


def test_a_section_without_a_group_is_its_own_patient(tmp_path):
    (tmp_path / "split.csv").write_text("name,group,split\na,,train\nb,,test\n")
    assert [row.group for row in read_split(tmp_path / "split.csv").rows] == ["a", "b"]


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="no such split file"):
        read_split(tmp_path / "nowhere.csv")
