import shlex
import shutil

import pytest
from tests.paper.synthetic import tiny_plan
from typer.main import get_command

from ntrm.cli.main import app
from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.labels import SKIN
from ntrm.models import weights
from ntrm.models.encoders import ResNetEncoder
from ntrm.paper.request import Request, commands_left, encoder_init
from ntrm.training.recipe import load_recipe


def request(data, out, **changes):
    settings = {"steps": 2, "batch": 2, "window": 64, "overlap": 0}
    wanted = {"archs": ("ntrm-paper",), "seeds": (0,), "options": {"width": 0.125}, "ablation": False}
    return Request(data, out, overrides=settings, **{**wanted, **changes})


def test_levels_that_the_paper_does_not_have_are_left_out_with_a_note(stripes, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(stripes, data)
    shutil.copytree(stripes / "5x", data / "1x")
    (data / "1x" / "Masks" / "BCC_1.png").unlink()  # nobody asks for it, so nobody is told
    plan = request(data, tmp_path / "out").plan()
    assert [variant.level for variant in plan.resolutions] == ["10x", "5x"]
    assert plan.notes == (
        "1x is left out: the paper has no results there (include it with --resolutions).",
        "Not in this dataset: 2x. ntrm data resample makes coarser levels from finer ones.",
    )
    assert request(data, tmp_path / "out", resolutions=("10x",)).plan().notes == ()


def test_facts_are_those_of_the_files(stripes, tmp_path):
    wanted = request(stripes, tmp_path / "out", resolutions=("10x",))
    found = wanted.gather()["10x"]
    assert found.sections == {"train": 2, "val": 1, "test": 2}
    assert found.patients == {"train": 2, "val": 1, "test": 2}
    # Windows of 64 cover 96 × 128 pixels two by two.
    assert (found.test_pixels, found.windows) == (2 * 96 * 128, 2 * 4)
    assert found.fingerprint == wanted.plan().fingerprints["10x"]
    assert found.mpp == pytest.approx(6.7)
    assert not found.phantom


def test_levels_are_those_wanted_coarsest_first(stripes, tmp_path):
    assert request(stripes, tmp_path).levels == ("10x", "5x")
    assert request(stripes, tmp_path, resolutions=("5x",)).levels == ("5x",)
    with pytest.raises(UsageError, match="no such resolution"):
        _ = request(stripes, tmp_path, resolutions=("2x",)).levels


def test_a_split_without_sections_is_refused(stripes, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(stripes, data)
    cases = data / "cases.csv"
    cases.write_text(cases.read_text().replace(",val,", ",train,"))
    with pytest.raises(UsageError, match="an empty split"):
        request(data, tmp_path / "out").plan()


def test_encoders_start_from_imagenet_where_the_weights_are_there(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    recipes = [load_recipe("fast", {"encoder_weights": named}) for named in ("auto", "imagenet")]
    monkeypatch.setenv("NTRM_WEIGHTS", str(tmp_path))
    assert {encoder_init("unet-resnet18", {}, recipe, SKIN) for recipe in recipes} == {"scratch"}
    state = {key: value.contiguous() for key, value in ResNetEncoder("resnet18", 1.0).state_dict().items()}
    path = tmp_path / "resnet18-imagenet.safetensors"
    save_file(state, path)
    assert weights.weights_folder() == tmp_path
    assert {encoder_init("unet-resnet18", {}, recipe, SKIN) for recipe in recipes} == {"imagenet"}
    for recipe in recipes:
        assert encoder_init("unet-resnet18", {"width": 0.125}, recipe, SKIN) == "scratch"
        assert encoder_init("attention-unet", {"width": 0.125}, recipe, SKIN) == "scratch"
    from_file = load_recipe("fast", {"encoder_weights": str(path)})
    assert encoder_init("unet-resnet18", {}, from_file, SKIN) == "file"
    assert encoder_init("attention-unet", {"width": 0.125}, from_file, SKIN) == "scratch"


def test_only_an_empty_folder_or_a_reproduction_is_written_to(tmp_path):
    data = tmp_path / "skin"
    Request(data, tmp_path / "new").check_folder()
    (tmp_path / "mine").mkdir()
    mine = Request(data, tmp_path / "mine")
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(RefusedError, match="no reproduction"):
        mine.check_folder()
    (tmp_path / "mine" / "thesis.tex").unlink()
    (tmp_path / "mine" / ".partial-x.json").write_text("")  # another command is at it
    mine.check_folder()
    # The first thing that is written: whatever comes after may be interrupted.
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["reproduction.json"]
    (tmp_path / "mine" / "data").mkdir()
    mine.check_folder()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        Request(data, tmp_path / "file").check_folder()
    with pytest.raises(RefusedError, match="inside the dataset"):
        Request(data, data / "out").check_folder()


def test_commands_say_everything_that_decides_the_result(tmp_path):
    plan = tiny_plan(archs=("ntrm-paper",), options={"width": 0.125})
    wanted = Request(tmp_path / "data", tmp_path, split_file=tmp_path / "splits.csv", boundaries=False)
    job = plan.job(next(row.variant for row in plan.ablation if row.factor.name == "boundary off"), 1)
    train, evaluate = wanted.commands(job)
    given = get_command(app).commands["train"].make_context("train", train[1:]).params
    assert load_recipe(given["recipe"]) == job.recipe
    assert (given["arch"], given["seed"], str(given["resolution"])) == ("ntrm-paper", 1, "10x")
    assert (given["name"], given["resume"], given["pictures"], given["reference"]) == (
        *(job.variant.label, True, False, False),
    )
    assert set(given["option"]) == {"boundary=false", "width=0.125"}
    assert given["out"] == wanted.run(job)
    given = get_command(app).commands["evaluate"].make_context("evaluate", evaluate[1:]).params
    assert given["splits"] == tmp_path / "splits.csv"
    assert given["model"] == str(wanted.run(job) / "model")
    assert (given["boundaries"], given["pictures"]) == (False, False)
    assert "--no-pictures" not in wanted.commands(job, pictures=True)[0]


def test_the_commands_that_are_left_are_lines_of_shell_that_name_files_that_are_there(stripes, tmp_path):
    lines = commands_left(request(stripes, tmp_path / "out a", resolutions=("10x",)))
    assert len(lines) == 2  # NTRM and its control
    for line in lines:
        train, evaluate = (shlex.split(command) for command in line.split(" && "))
        assert (train[:2], evaluate[:2]) == (["ntrm", "train"], ["ntrm", "evaluate"])
        assert load_recipe(train[train.index("--recipe") + 1]).steps == 2
        assert evaluate[evaluate.index("--model") + 1] == train[train.index("--out") + 1] + "/model"
