import json
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from ntrm import __version__
from ntrm.cli import doctor as environment
from ntrm.cli.doctor import CORE, EXTRAS, examine
from ntrm.cli.main import app

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_everything_the_main_job_needs_is_found_here():
    told = CliRunner().invoke(app, ["doctor", "--json"])
    document = json.loads(told.stdout)
    assert (told.exit_code, document["version"], document["complete"]) == (0, __version__, True)
    assert {f"extra {name}" for name in EXTRAS} <= {each["what"] for each in document["findings"]}


def test_every_dependency_and_every_extra_of_users_is_examined():
    def required(texts):
        return {canonicalize_name(Requirement(text).name) for text in texts}

    def examined(modules):
        return {canonicalize_name(environment._DISTRIBUTIONS.get(module, module).split()[0]) for module in modules}

    # Without openslide-bin, openslide-python does not import.
    assert examined(CORE) == required(PROJECT["dependencies"]) - {"openslide-bin"}
    extras = {name: required(texts) for name, texts in PROJECT["optional-dependencies"].items()}
    assert {name: examined(modules) for name, modules in EXTRAS.items()} == {
        name: names for name, names in extras.items() if name not in ("dev", "docs", "audit")
    }


def test_a_missing_library_is_named_with_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "shapely", None)
    finding = next(f for f in examine() if f.what == "library shapely")
    assert (finding.present, finding.needed) == (False, True)
    assert "pip install shapely" in finding.hint
