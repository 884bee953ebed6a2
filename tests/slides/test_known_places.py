import os

import pytest

from ntrm.slides import inputs
from ntrm.slides.inputs import PLACES, place_of, remember_places, source_fingerprint, state_folder


@pytest.fixture
def slide(tmp_path, monkeypatch):
    monkeypatch.setenv("NTRM_STATE", str(tmp_path / "state"))
    path = tmp_path / "Jörg \udce9.svs"
    path.write_bytes(b"a slide")
    return path


def test_a_slide_is_found_where_it_lay_as_long_as_it_lies_there(slide, monkeypatch):
    source = source_fingerprint(slide)
    assert place_of(source) is None
    monkeypatch.chdir(slide.parent)
    remember_places({source: slide.relative_to(slide.parent)})
    assert place_of(source) == slide
    slide.write_bytes(b"another")
    assert place_of(source) is None
    slide.unlink()
    assert place_of(source) is None
    os.mkfifo(slide)
    assert place_of(source) is None


def test_only_the_owner_may_read_it_and_the_oldest_are_forgotten(slide, monkeypatch):
    source = source_fingerprint(slide)
    monkeypatch.setattr(inputs, "MOST", 2)
    remember_places({source: slide, "b": slide})
    remember_places({source: slide})
    remember_places({"c": slide})
    assert place_of(source) == slide
    text = (state_folder() / PLACES).read_text()
    assert '"b"' not in text
    assert '"c"' in text
    assert (state_folder() / PLACES).stat().st_mode & 0o777 == 0o600
    assert state_folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"SOURCE": 3}', '{"SOURCE": "a\\u0000b"}'])
def test_a_damaged_memory_is_none(slide, damage):
    source = source_fingerprint(slide)
    remember_places({source: slide})
    (state_folder() / PLACES).write_text(damage.replace("SOURCE", source))
    assert place_of(source) is None
    remember_places({source: slide})
    assert place_of(source) == slide
