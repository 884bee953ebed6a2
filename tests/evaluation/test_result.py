import csv
import json

import numpy as np
import pytest
from tests.evaluation.small import ByColour, count, draw_mask, of_test, scores_of

from ntrm.core.errors import RefusedError, UsageError
from ntrm.evaluation import result
from ntrm.evaluation.evaluate import evaluate
from ntrm.evaluation.result import most_changed


def test_files_hold_what_others_read(data, sections, tmp_path):
    out = tmp_path / "out"
    found = evaluate(ByColour(), data, out, device="cpu")
    assert {path.name for path in out.iterdir()} == set(result.FILES)
    with np.load(out / "confusions.npz", allow_pickle=False) as arrays:
        assert arrays["names"].tolist() == ["s0", "s1", "s2"]
        assert arrays["patients"].tolist() == ["p0", "p0", "p1"]
        assert arrays["final"].dtype == arrays["coarse"].dtype == np.int64
        for index, (_, seen, truth) in enumerate(of_test(sections).values()):
            assert np.array_equal(arrays["final"][index], count(truth, seen))
        assert np.array_equal(arrays["coarse"].sum(axis=(1, 2)), arrays["final"].sum(axis=(1, 2)))
    with (out / "sections.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["name"] for row in rows] == ["s0", "s1", "s2"]
    for row, (_, seen, truth), section in zip(rows, of_test(sections).values(), found.sections, strict=True):
        assert float(row["iou"]) == pytest.approx(scores_of([count(truth, seen)])[1])
        assert float(row["ece"]) == pytest.approx(section.calibration.expected_error)
        assert int(row["pixels"]) == truth.size


def test_a_folder_with_something_else_is_left_alone(data, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(RefusedError, match=r"(?s)no evaluation.*thesis\.txt"):
        evaluate(ByColour(), data, out, device="cpu")
    (out / "metrics.json").write_text("{}")
    with pytest.raises(RefusedError, match="no evaluation"):
        evaluate(ByColour(), data, out, device="cpu")
    assert {path.name for path in out.iterdir()} == {"thesis.txt", "metrics.json"}
    with pytest.raises(UsageError, match="not a folder"):
        evaluate(ByColour(), data, out / "thesis.txt", device="cpu")


def test_metrics_come_last_and_a_broken_run_can_be_repeated(data, tmp_path, monkeypatch):
    out = tmp_path / "out"
    evaluate(ByColour(), data, out, device="cpu", pictures=False)
    before = (out / "metrics.json").read_text()

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(result, "write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            evaluate(ByColour(coarse=False), data, out, device="cpu", pictures=False)
    assert not (out / "metrics.json").exists(), "old scores beside new tables"
    assert (out / "sections.csv").exists()
    (out / ".partial-x.png").write_bytes(b"half")
    evaluate(ByColour(), data, out, device="cpu", pictures=False)
    again = json.loads((out / "metrics.json").read_text())
    assert again["pooled"] == json.loads(before)["pooled"]
    assert not list(out.glob(".partial-*"))


@pytest.mark.parametrize(("shape", "side"), [((40, 60), 16), ((40, 60), 15), ((10, 60), 32), ((5, 7), 64)])
def test_the_field_with_the_most_changes_is_found(shape, side, random):
    truth = draw_mask(random, *shape, ignored=0.1)
    coarse, final = (np.where(random.random(shape) < 0.8, truth, 0).astype(np.uint8) for _ in range(2))
    rows, columns = most_changed(truth, coarse, final, side)
    changed = ((coarse == truth) != (final == truth)) & (truth != 255)
    high, wide = min(side, shape[0]), min(side, shape[1])
    assert (rows.stop - rows.start, columns.stop - columns.start) == (high, wide)
    assert min(rows.start, columns.start) >= 0
    assert rows.stop <= shape[0]
    assert columns.stop <= shape[1]
    best = max(
        changed[top : top + high, left : left + wide].sum()
        for top in range(shape[0] - high + 1)
        for left in range(shape[1] - wide + 1)
    )
    assert changed[rows, columns].sum() == best
