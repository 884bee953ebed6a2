import csv
from statistics import fmean, stdev

import pytest

from ntrm.reproduction.cells import Difference, Score, Table


def test_a_score_is_mean_and_sample_deviation(random):
    values = tuple(random.random(5).tolist())
    score = Score(values)
    assert score.mean == pytest.approx(fmean(values))
    assert score.spread == pytest.approx(stdev(values))
    assert str(score) == f"{fmean(values):.4f} ± {stdev(values):.4f}"
    assert Score(()).mean is None
    assert Score((0.5,)).spread is None


def test_failed_seeds_are_told():
    assert str(Score((), failed=3)) == "failed"
    assert str(Score((0.5, 0.5), failed=1)) == "0.5000 ± 0.0000 (1 seed failed)"
    assert not Score(())


def test_csv_has_plain_numbers_in_columns_of_their_own(tmp_path):
    rows = (("a", Score((0.25, 0.75)), Difference(1.0, -2.0, 3.0, established=False)), ("b", None, "failed"))
    path = Table("t", "T", ("name", "IoU", "gain"), rows).write_csv(tmp_path)
    with path.open(newline="") as stream:
        first, second = csv.DictReader(stream)
    assert (float(first["IoU"]), first["IoU seeds"], first["IoU failed"]) == (0.5, "2", "0")
    assert float(first["IoU sd"]) == pytest.approx(stdev((0.25, 0.75)))
    assert [first[key] for key in ("gain", "gain low", "gain high", "gain established")] == [
        "1.0",
        "-2.0",
        "3.0",
        "False",
    ]
    assert (second["IoU"], second["gain"], second["gain low"]) == ("", "failed", "")


def test_a_minus_is_one_on_the_page_and_a_hyphen_in_the_csv(tmp_path):
    rows = (("a", -0.25, Score((-0.5,)), Difference(-1.0, -2.0, 3.0, established=False), "−3.1 % to +2.0 %"),)
    shown = Table("t", "T", ("name", "b", "c", "d", "e"), rows)
    assert not any("-" in cell for row in shown.texts for cell in row)
    written = shown.write_csv(tmp_path).read_text()
    assert "−" not in written
    # A sentence that begins with a number's sign is no formula of a spreadsheet.
    assert "a,-0.25,-0.5," in written
    assert ",'-3.1 % to +2.0 %" in written
