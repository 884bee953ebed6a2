"""Sections that clicks are simulated on: kept as the product makes them, and scored from there."""

import json

import numpy as np
from research.correction_curves import Picture, main, names_in, row_of, section
from tests.correct.corrected import Unsure
from tests.segment.small import InProcess

from ntrm.models.registry import ARCHITECTURES
from ntrm.slides import isolated
from research import correction_curves


def test_rows_are_written_without_the_zero_before_the_point():
    assert row_of([0.25, -0.25, 1.0]) == ".250 | −.250 | 1.000"


def test_a_section_is_kept_and_clicked_on(tmp_path, monkeypatch, random, capsys):
    truth = np.zeros((64, 96), dtype=np.uint8)
    truth[:, 48:] = 1
    image = np.where(truth[..., None] == 0, [150, 60, 120], [220, 180, 200]) + random.integers(-20, 20, (64, 96, 3))
    picture = Picture("phantom-own-one", image.astype(np.uint8), truth, 6.7, 6.7)
    monkeypatch.setitem(ARCHITECTURES, "by-colour", Unsure)
    monkeypatch.setattr(isolated, "ReadingProcess", InProcess)
    monkeypatch.setattr(correction_curves, "phantom", lambda which: iter([picture]))
    Unsure().describe(name="mine").save_pretrained(tmp_path / "model")
    words = correction_curves.Names.same(("EPI", "RET"))
    monkeypatch.setitem(correction_curves.WORDS, "phantom", words)
    kept = ["--kept", str(tmp_path / "kept"), "--sets", "phantom-own"]
    main(["keep", *kept, "--model", str(tmp_path / "model")])
    assert names_in(tmp_path / "kept", "phantom") == ["phantom-own-one"]
    seen, known = section(tmp_path / "kept", "phantom-own-one")
    assert seen.texture.shape == known.mask.shape == (64, 96)
    main(["curves", *kept, "--clicks", "2", "--out", str(tmp_path / "tables")])
    found = json.loads((tmp_path / "tables" / "phantom-own-largest.json").read_text())
    assert set(found["curves"]) == {"network", "nothing"}
    assert found["curves"]["nothing"]["iou"][-1] > 0.9
    assert "| phantom-own | nothing | largest | .000 |" in capsys.readouterr().out
