"""The study of window sizes: the rows are evaluations, and a network that looks at single pixels does not change."""

import json
import re
import sys

import pytest
from research.window_size import main, windows
from tests.evaluation.small import ByColour, draw_sections, write_dataset

from ntrm.evaluation.evaluate import evaluate
from ntrm.models.registry import ARCHITECTURES


@pytest.mark.parametrize(
    ("side", "multiple", "expected"),
    [
        (256, 32, [128, 256, 512, 1024]),
        (64, 32, [32, 64, 128, 256]),
        (32, 32, [32, 64, 128]),
        (96, 32, [64, 96, 192, 384]),
    ],
)
def test_windows_are_what_a_network_can_take(side, multiple, expected):
    assert windows(side, multiple) == expected


def test_every_row_is_an_evaluation(tmp_path, monkeypatch, random, capsys):
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    data = write_dataset(tmp_path / "data", draw_sections(random, (70, 90), (20, 140)))
    for name in ("one", "two"):
        ByColour().describe(name=name).save_pretrained(tmp_path / name)
    models = [word for name in ("one", "two") for word in ("--model", str(tmp_path / name))]
    out = tmp_path / "rows.json"
    monkeypatch.setattr(
        sys, "argv", ["window_size.py", *models, "--data", str(data), "--out", str(out), "--device", "cpu"]
    )
    main()
    rows = json.loads(out.read_text())
    assert [(row["model"], row["window"]) for row in rows] == [
        (m, w) for m in ("one", "two") for w in (32, 64, 128, 256)
    ]
    iou = evaluate(tmp_path / "one", data, None, device="cpu", boundaries=False).pooled.macro["iou"]
    assert {row["iou"] for row in rows} == {iou}
    printed = capsys.readouterr().out
    assert len(re.findall(rf"\| {iou:.4f} \|", printed)) == len(rows)
