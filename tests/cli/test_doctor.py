import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ntrm.cli import doctor as environment
from ntrm.cli.doctor import CORE, EXTRAS, MAY_LACK, examine, version_of

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_everything_the_main_job_needs_is_found_here():
    findings = examine()
    assert not [f for f in findings if f.needed and not f.present]
    assert {f"extra {name}" for name in EXTRAS} <= {f.what for f in findings}


def test_every_dependency_and_every_extra_of_users_is_examined():
    def required(texts):
        return {canonicalize_name(Requirement(text).name) for text in texts}

    def examined(modules):
        return {canonicalize_name(environment._DISTRIBUTIONS.get(module, module)) for module in modules}

    # The library of openslide-bin is examined by itself.
    assert examined(CORE) == required(PROJECT["dependencies"]) - {"openslide-bin"}
    extras = {name: required(texts) for name, texts in PROJECT["optional-dependencies"].items()}
    assert {name: examined(modules) for name, modules in EXTRAS.items()} == {
        name: names for name, names in extras.items() if name not in ("dev", "docs", "audit")
    }
    assert MAY_LACK.keys() <= set(CORE)


def test_a_missing_library_is_named_with_what_is_lost(monkeypatch):
    monkeypatch.setitem(sys.modules, "shapely", None)
    finding = next(f for f in examine() if f.what == "library shapely")
    assert (finding.present, finding.needed) == (False, True)
    assert "pip install shapely" in finding.hint
    assert "polygons" in finding.hint


def test_a_library_whose_shared_object_does_not_load_counts_as_missing(monkeypatch):
    def broken(name):
        raise OSError("libopenslide.so: cannot open shared object file")

    monkeypatch.setattr(environment.importlib, "import_module", broken)
    assert version_of("openslide") is None


def test_module_names_lead_to_their_distributions():
    assert not {version_of("PIL"), version_of("yaml")} & {None, "version unknown"}
    assert version_of("surely_not_installed") is None
