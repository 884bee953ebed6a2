"""The promises of pyproject.toml and constraints.txt: everything pinned, nothing heavy in the core."""

import importlib.metadata
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ntrm.version import __version__

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PINS = {
    canonicalize_name(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", CONSTRAINTS, re.M)
}
HIDDEN = ["openslide", "shapely", "imagecodecs", "zarr", "jinja2", "pandas", "fastapi", "uvicorn", "ray"]
HIDDEN += ["fsspec", "s3fs"]
HIDDEN += ["lightning", "torchmetrics", "skimage", "timm", "transformers", "onnx", "onnxruntime", "torchvision"]


def installed_closure(requirements: list[str]) -> set[str]:
    """Names of the installed distributions that the requirements lead to, directly or not."""
    seen: set[str] = set()
    todo = [Requirement(text) for text in requirements]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in (requirement.extras or {""}) | {""}
        )
        if name in seen or not wanted:
            continue
        try:
            below = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        seen.add(name)
        todo += [Requirement(text) for text in below]
    return seen


def test_every_dependency_is_pinned_exactly():
    extras = PROJECT["optional-dependencies"]
    closure = installed_closure(PROJECT["dependencies"] + extras["dev"])
    assert len(closure) > 30
    # The CUDA build of torch pins its own libraries, which the CPU build does not have.
    own = {name for name in closure if re.fullmatch(r"(cuda|nvidia)-.*|triton", name)}
    assert closure - PINS.keys() - own - {"ntrm", "setuptools", "pip"} == set()
    every = PROJECT["dependencies"] + [text for texts in extras.values() for text in texts]
    assert {canonicalize_name(Requirement(text).name) for text in every} <= PINS.keys()


def test_pins_lie_inside_the_ranges():
    every = PROJECT["dependencies"] + [text for texts in PROJECT["optional-dependencies"].values() for text in texts]
    for requirement in map(Requirement, every):
        assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)]), requirement


def test_the_core_carries_no_library_that_breaks_beside_a_cpu_torch():
    core = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert core.isdisjoint({"torchvision", "timm", "segmentation-models-pytorch", "fastapi", "ray", "transformers"})


PACKAGES = sorted(
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    for path in (ROOT / "src" / "ntrm").rglob("*.py")
    # The service is an extra of its own, and scanner files are read in one module: they may ask for theirs at the top.
    if path.name not in ("__main__.py", "openslide_reader.py") and "service" not in path.relative_to(ROOT / "src").parts
)


def test_one_version_stands_everywhere():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == __version__
    assert PROJECT["dynamic"] == ["version"]
    newest, *released = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest == "Unreleased"
    # What was released is not released again.
    assert [Version(text) for text in released] == sorted({Version(text) for text in released}, reverse=True)
    assert all(Version(text) <= Version(__version__) for text in released)


CI = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
STEPS = [step for job in CI["jobs"].values() for step in job["steps"]]


def test_continuous_integration_runs_commands_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = {*re.findall(r"^([a-z-]+):", makefile, re.M), *re.findall(r"^\$\(VENV\)(/\.\w+):", makefile, re.M)}
    asked = {target for step in STEPS for target in re.findall(r"^make (\S+)", step.get("run", ""), re.M)}
    assert {"test-all", "reproduce-small"} <= asked
    assert {target.removeprefix(".venv") for target in asked} <= known
    assert all(re.search(rf"^{name} *\?=", makefile, re.M) for name in CI["env"])


def test_continuous_integration_tries_every_python_that_is_promised_on_both_processors():
    matrix = CI["jobs"]["test"]["strategy"]["matrix"]
    promised = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert matrix["python"] == promised
    assert SpecifierSet(PROJECT["requires-python"]).contains(promised[0])
    assert {name.endswith("-arm") for name in matrix["os"]} == {True, False}


def test_continuous_integration_is_bounded_and_may_only_read():
    assert CI["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 and "permissions" not in job for job in CI["jobs"].values())
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in STEPS if "uses" in step)


def test_every_module_imports_on_a_gpu_box_without_posix_and_without_slide_and_service_libraries():
    code = textwrap.dedent(f"""
        import importlib, importlib.abc, sys

        class Hide(importlib.abc.MetaPathFinder):
            # Stands before all other finders: who asks whether a hidden library is there is told that it is not.
            finders = list(sys.meta_path)

            def find_spec(self, name, path=None, target=None):
                hidden = name.split(".")[0] in {HIDDEN!r}
                found = (finder.find_spec(name, path, target) for finder in self.finders if not hidden)
                return next((spec for spec in found if spec is not None), None)

        sys.meta_path[:] = [Hide()]
        for name in {PACKAGES!r}:
            importlib.import_module(name)
    """)
    assert len(PACKAGES) > 150
    without_posix = Path(__file__).with_name("without_posix.py")
    done = subprocess.run([sys.executable, without_posix, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["ntrm", "ntrm.cli.main"])
def test_nothing_heavy_is_imported_before_it_is_needed(module):
    heavy = ["torch", "scipy", "matplotlib", "openslide", "shapely"]
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_mask_is_measured_without_torch():
    code = """
        import pkgutil, sys
        from importlib import import_module
        import ntrm.regions
        for module in pkgutil.iter_modules(ntrm.regions.__path__):
            import_module(f"ntrm.regions.{module.name}")
        print("torch" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_package_imports_go_one_way():
    page, package = (ROOT / "docs" / "development.md").read_text(encoding="utf-8"), ROOT / "src" / "ntrm"
    order = re.findall(r"^  (\w+)/ ", page, re.M)
    assert sorted(order) == sorted(path.parent.name for path in package.glob("*/__init__.py"))
    assert {path.stem for path in package.glob("*.py")} == {"__init__", "__main__", "version"}
    wrong = []
    for path in package.glob("*/**/*.py"):
        above = {"version", *order[: order.index(path.relative_to(package).parts[0]) + 1]}
        targets = set(re.findall(r"^\s*(?:from|import) ntrm\.(\w+)", path.read_text(encoding="utf-8"), re.M))
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in targets - above]
    assert wrong == []
