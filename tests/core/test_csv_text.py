"""CSV text that no spreadsheet computes."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.csv_text import guarded, original, read_rows, read_table, rows_text
from ntrm.core.errors import DataError

STARTS = "=+-@\t\r\n＝＋－＠"
FORMULAS = ["=1+1", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "=", "-A", "+49 7", "-inf", "－1+1"]
TEXTS = st.text(st.sampled_from(STARTS + "'\", \r\nä019.eE") | st.characters(codec="utf-8"), max_size=12)


def read_by_others(text):
    """What any other program reads."""
    return [*csv.reader(io.StringIO(text, newline=""))]


@pytest.mark.parametrize("text", FORMULAS)
def test_what_a_spreadsheet_would_compute_gets_an_apostrophe(text):
    assert read_by_others(rows_text([[text, "x"]])) == [[f"'{text}", "x"]]


@pytest.mark.parametrize(
    "text", ["-1", "-1.5", "+2", "-1e-05", "-1,5", "-", "++", "+++", "BCC", "'tis", "", "a=b", "1-2"]
)
def test_numbers_grades_and_other_texts_stay_as_they_are(text):
    assert guarded(text) == original(text) == text


def test_numbers_that_are_no_texts_stay_as_they_are():
    assert rows_text([[-1, -0.5, -1e-300, float("-inf"), None, True]]) == "-1,-0.5,-1e-300,-inf,,True\n"


@given(st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=3))
def test_every_text_comes_back_and_none_begins_like_a_formula(rows):
    text = rows_text(rows)
    assert [*read_rows(io.StringIO(text, newline=""))] == rows
    cells = [cell for row in read_by_others(text) for cell in row]
    assert len(cells) == sum(map(len, rows))
    for cell in cells:
        assert cell[:1] not in STARTS or re.fullmatch(r"[+-]*[0-9.,]*([eE][+-]?[0-9]+)?", cell)


def test_blanks_go_before_the_apostrophe_is_looked_for():
    assert [*read_rows([" '=a , b,c\n", "\n", " 'tis\n"], strip=True)] == [["=a", "b", "c"], ["'tis"]]


def test_a_short_row_has_empty_cells_and_a_long_one_may_only_end_in_empty_ones(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1\n1,2,\n")
    assert read_table(tmp_path / "a.csv", ("a",)) == [{"a": "1", "b": ""}, {"a": "1", "b": "2"}]
    (tmp_path / "a.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(DataError, match="too many cells"):
        read_table(tmp_path / "a.csv", ("a",))
