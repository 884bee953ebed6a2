from pathlib import Path

import pytest
import torch

from ntrm.core.errors import DataError
from ntrm.pipeline.segmenter import LONGEST, is_expected, reason_of
from ntrm.wsi.inputs import SlideInput

SLIDE = SlideInput(Path("/archive/Doe, Jane/Jane Doe 1950.svs"), "Jane Doe 1950.svs")


def reason(error):
    try:
        raise error
    except Exception as raised:  # noqa: BLE001 - a traceback is wanted
        return reason_of(raised, SLIDE, "s7")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("shapes 3 and 4 differ"), "unexpected RuntimeError: shapes 3 and 4 differ"),
        (RuntimeError(""), "unexpected RuntimeError: no message"),
        (ValueError("no date: 'Jane Doe, 1950'"), "unexpected ValueError: no date: …"),
        (KeyError("patient Jane"), "unexpected KeyError: …"),
        (ValueError('bad "O\'Neill" here'), "unexpected ValueError: bad … here"),
        (AttributeError("'Look' object has no attribute 'x'"), "unexpected AttributeError: 'Look' object has no"),
        (RuntimeError("in /home/jane.doe/x.py line 3"), "unexpected RuntimeError: in … line 3"),
        (RuntimeError(f"reading {SLIDE.path} failed"), "unexpected RuntimeError: reading"),
        (OSError(28, "No space left on device", "/archive/Doe, Jane/x"), "OSError: No space left on device"),
        (FileNotFoundError(2, "No such file", str(SLIDE.path)), "FileNotFoundError: No such file"),
        (MemoryError(), "MemoryError: the memory is full"),
        (DataError("damaged", got="Jane Doe 1950.svs", hint="copy"), "damaged; got s7; copy"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "unexpected OutOfMemoryError: CUDA out of memory. Tried"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_reasons_say_what_happened_and_not_to_whom(error, expected):
    text = reason(error)
    assert text.startswith(expected), text
    assert "Doe" not in text
    assert "Jane" not in text
    assert "O'Neill" not in text
    assert "\n" not in text


def test_the_place_in_the_program_is_told_for_bugs():
    from ntrm.wsi.grid import SlideGrid

    try:
        SlideGrid(None, 1.0)
    except AttributeError as error:
        text = reason_of(error, SLIDE, "s7")
    assert "(at wsi/grid.py:" in text
    assert "NoneType" in text


def test_pages_of_text_are_cut():
    assert len(reason(RuntimeError("much " * 1000))) == LONGEST


def test_only_bugs_and_devices_make_a_process_suspect():
    assert [is_expected(each) for each in (DataError("x"), OSError(), MemoryError())] == [True] * 3
    assert [is_expected(each) for each in (RuntimeError(), KeyError(), torch.OutOfMemoryError())] == [False] * 3
