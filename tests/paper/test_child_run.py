import json

import numpy as np
import pytest

from ntrm.core.errors import RefusedError
from ntrm.core.labels import SKIN
from ntrm.evaluation.interfaces import interface_counts
from ntrm.paper import child_run


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (None, 0, ""),
        (RefusedError("the run is another one", hint="choose a new folder"), 3, "hint:     choose a new folder"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("oh"), 1, "ZeroDivisionError: oh"),
    ],
)
def test_the_exit_code_and_the_log_say_how_it_ended(tmp_path, monkeypatch, capsys, raised, code, said):
    done = []

    def work(document):
        done.append(document)
        if raised is not None:
            raise raised

    monkeypatch.setattr(child_run, "work", work)
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"arch": "ntrm-paper"}))
    assert child_run.main([str(path)]) == code
    assert done == [{"arch": "ntrm-paper"}]
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("coarse", [True, False])
def test_interfaces_are_kept_section_by_section(tmp_path, random, coarse):
    masks = random.integers(0, 12, (3, 2, 20, 30))
    found = [interface_counts(truth, final, truth if coarse else None, SKIN) for truth, final in masks]
    child_run.write_interfaces(tmp_path / "interfaces.npz", found)
    with np.load(tmp_path / "interfaces.npz") as stored:
        assert set(stored.files) == ({"pixels", "wrong", "corrected", "broken"} if coarse else {"pixels", "wrong"})
        for name in stored.files:
            np.testing.assert_array_equal(stored[name], np.stack([getattr(each, name) for each in found]))
