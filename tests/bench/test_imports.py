"""Every script of bench/ and research/ can be imported: names that it takes from the package are there."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [f"{folder}.{path.stem}" for folder in ("bench", "research") for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_can_be_imported(script):
    assert import_module(script).__doc__
