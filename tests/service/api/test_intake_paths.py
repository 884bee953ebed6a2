import os
from pathlib import Path

import pytest
from tests.service.small import refused

from ntrm.service.api.routes_slides import file_under
from ntrm.service.core.problems import ProblemError


@pytest.fixture
def roots(tmp_path):
    """Two roots with slides, and a secret beside them that links lead to."""
    inside, other, secret = tmp_path / "root", tmp_path / "other", tmp_path / "secret"
    for folder in (inside / "sub", other, secret):
        folder.mkdir(parents=True)
    for path in (inside / "a.svs", inside / "sub" / "b c.svs", other / "d.svs", secret / "key.svs"):
        path.write_bytes(b"x")
    (inside / "link.svs").symlink_to(secret / "key.svs")
    (inside / "away").symlink_to(secret)
    (inside / "good.svs").symlink_to(inside / "a.svs")
    (inside / "loop").symlink_to(inside / "loop")
    os.mkfifo(inside / "pipe.svs")
    (tmp_path / "root-twin").mkdir()
    (tmp_path / "root-twin" / "e.svs").write_bytes(b"x")
    return inside, other


def test_files_below_a_root_are_found_however_they_are_named(roots):
    inside, other = roots
    assert file_under(roots, "a.svs") == inside / "a.svs"
    assert file_under(roots, "sub/b c.svs") == inside / "sub" / "b c.svs"
    assert file_under(roots, "sub/../a.svs") == inside / "a.svs"
    assert file_under(roots, str(other / "d.svs")) == other / "d.svs"
    assert file_under(roots, "d.svs") == other / "d.svs"
    assert file_under(roots, "good.svs") == inside / "a.svs"


def test_a_root_may_be_given_by_a_link_or_from_here(roots, tmp_path, monkeypatch):
    inside, _ = roots
    (tmp_path / "way").symlink_to(inside)
    monkeypatch.chdir(inside / "sub")
    for root in (tmp_path / "way", Path(".."), Path("..", "..", "way")):
        for text in ("a.svs", str(inside / "a.svs"), str(tmp_path / "way" / "a.svs")):
            assert file_under((root,), text) == inside / "a.svs"


OUTSIDE = [
    "../secret/key.svs", "sub/../../secret/key.svs", "/etc/passwd", "link.svs", "away/key.svs", "nothing.svs", "",
    "a.svs\x00", "\x00", "%2e%2e/secret/key.svs", "..%2fsecret%2fkey.svs", "....//secret/key.svs", "~/x", "A.SVS",
    "../root-twin/e.svs", "loop", "pipe.svs", "x" * 5000, "a/" * 2000 + "b", "..", "\\..\\secret\\key.svs",
    "file:///etc/passwd", "\udcff.svs", "/proc/self/environ", "/dev/zero", "//etc/passwd",
]  # fmt: skip


def test_nothing_else_is_and_nothing_tells_what_lies_outside(roots):
    inside, _ = roots
    (inside / ".service" / "uploads").mkdir(parents=True)
    (inside / ".service" / "uploads" / "f.svs").write_bytes(b"x")
    (inside / "linked").symlink_to(inside / ".service")
    own = (".service/uploads/f.svs", "linked/uploads/f.svs", ".", str(inside))
    for text, below in (*((text, roots) for text in (*OUTSIDE, *own)), (str(inside / "a.svs"), ())):
        with pytest.raises(ProblemError) as caught:
            file_under(below, text)
        assert (caught.value.status, caught.value.code, caught.value.got) == (403, "outside", None), text
    with refused(422):
        file_under(roots, "sub")
