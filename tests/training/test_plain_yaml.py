import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import DataError
from ntrm.training.plain_yaml import parse_yaml

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcdefg", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PLAIN)
def test_what_pyyaml_writes_is_read_as_it_was(value):
    assert parse_yaml(yaml.safe_dump(value, allow_unicode=True), "it") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("1e-4", 1e-4),
        ("-2.5E+3", -2500.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("+7", 7),
        ("010", 10),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-01-31", "2026-01-31"),
        ("none", "none"),
        ("null", None),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ("5 # five", 5),
    ],
)
def test_scalars_mean_what_people_mean(text, value):
    found = parse_yaml(text, "it")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["!!python/name:os.system", "!!python/tuple [1]", "!thing 3", "a: 1\n---\nb: 2", "\0", "? [1]\n: 2"]
)
def test_anything_beyond_plain_values_is_refused(text):
    with pytest.raises(DataError, match="cannot understand it"):
        parse_yaml(text, "it")
