import pytest
from tests.helpers import is_held

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import holding


def test_a_lock_is_held_by_one_and_goes_with_its_holder(tmp_path):
    path = tmp_path / "deep" / "lock"
    with holding(path), pytest.raises(RefusedError, match="another process works"), holding(path):
        pass
    with pytest.raises(KeyError), holding(path):
        raise KeyError
    assert not is_held(path)
    with holding(path, wait=True):
        assert is_held(path)


def test_a_file_is_no_folder_to_work_in(tmp_path):
    (tmp_path / "letter.txt").write_text("Dear colleague")
    for folder in (tmp_path / "letter.txt", tmp_path / "letter.txt" / "deeper"):
        with pytest.raises(UsageError, match="the output is not a folder"), holding(folder / "lock"):
            pass
    assert (tmp_path / "letter.txt").read_text() == "Dear colleague"


def test_a_link_in_place_of_a_lock_is_refused_and_what_it_leads_to_stays(tmp_path):
    path, target = tmp_path / "lock", tmp_path / "target"
    target.write_text("kept")
    path.symlink_to(target)
    with pytest.raises(DataError, match="is a link or no plain file"), holding(path):
        pass
    path.unlink()
    path.write_text("kept, too")
    with holding(path):
        pass
    assert (target.read_text(), path.read_text()) == ("kept", "kept, too")
