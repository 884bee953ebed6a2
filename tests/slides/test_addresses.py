from pathlib import Path

import pytest

from ntrm.core.errors import RefusedError, UsageError
from ntrm.slides.object_store import Address, is_address


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:secret@bucket/a.svs",
        "s3://key@bucket/a.svs",
        "s3://bucket/a.svs?X-Amz-Signature=secret",
        "sftp://user:secret@host/a.svs",
    ],
)
def test_credentials_and_queries_are_refused_and_not_repeated(text):
    with pytest.raises(RefusedError, match="credentials") as caught:
        Address.parse(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://", "s3://bucket//a.svs", "s3://bucket/../a.svs", "s3://bucket/a\nb", "simplecache::s3://bucket/a",
        "s3://bucket/a::b", "file:///slides/a.svs", "a.svs",
    ],
)  # fmt: skip
def test_what_names_no_object_is_refused(text):
    with pytest.raises(UsageError):
        Address.parse(text)


def test_below_a_folder_is_not_beside_it():
    out = Address.parse("s3://bucket/out")
    assert Address.parse("s3://bucket/out/a.svs").lies_in(out)
    assert out.lies_in(out)
    assert not Address.parse("s3://bucket/output/a.svs").lies_in(out)
    assert not Address.parse("s3://other/out/a.svs").lies_in(out)
    assert not out.lies_in(None)


def test_an_address_that_became_a_path_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be a path"):
        is_address(Path("s3://bucket/a.svs"))
    assert not is_address(tmp_path)
    assert is_address("simplecache::s3://bucket/a")
    assert not is_address("odd:name.svs")
