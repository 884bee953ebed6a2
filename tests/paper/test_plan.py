import shlex
import shutil
from dataclasses import replace

import pytest
from tests.paper.synthetic import tiny_plan
from typer.main import get_command

from ntrm.cli.main import app
from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.labels import SKIN
from ntrm.models import weights
from ntrm.models.encoders import ResNetEncoder
from ntrm.models.registry import ARCHITECTURES
from ntrm.paper import plan as plans
from ntrm.paper.plan import FACTORS, Request, encoder_init, taken
from ntrm.paper.published import SYSTEMS, TABLE_1, TITLES, dice_gains
from ntrm.training.recipe import load_recipe


def test_all_systems_the_control_and_every_factor_are_planned_once_for_each_seed():
    plan = tiny_plan(seeds=(0, 1, 2))
    assert [variant.arch for variant in plan.systems] == list(SYSTEMS)
    assert plan.control.arch == "ntrm-control"
    assert [row.factor.name for row in plan.ablation] == [factor.name for factor in FACTORS]
    # Six systems, the control, thirteen factors, and the control that matches a coarse head on D2.
    assert len(plan.jobs) == 3 * (6 + 1 + 13 + 1)
    assert len({job.key for job in plan.jobs}) == len(plan.jobs)
    assert [job.seed for job in plan.jobs] == sorted(job.seed for job in plan.jobs)


def test_a_second_table_from_scratch_only_where_encoders_start_differently():
    alike = tiny_plan(ablation=False)
    assert alike.scratch == ()
    assert tiny_plan(ablation=False, imagenet=SYSTEMS).scratch == ()
    mixed = tiny_plan(ablation=False, imagenet=("ntrm-paper", "unet-resnet18", "deeplabv3plus"), seeds=(0,))
    assert {variant.init for variant in mixed.scratch} == {"scratch"}
    assert [variant.arch for variant in mixed.scratch] == [*SYSTEMS, "ntrm-control"]
    # The three that start from scratch anyway are not trained twice.
    assert len(mixed.jobs) == 6 + 1 + 4
    assert "unet-vgg16" in mixed.notes[0]
    recipes = {job.variant: job.recipe.encoder_weights for job in mixed.jobs}
    assert all(recipes[v] == ("imagenet" if v.init == "imagenet" else "none") for v in recipes)


def test_keys_are_stable_and_follow_everything_that_decides_the_result():
    def keys(**changes):
        return {job.key for job in tiny_plan(archs=("ntrm-paper",), seeds=(0,), ablation=False, **changes).jobs}

    first = keys()
    assert first == keys()
    assert first.isdisjoint(keys(options={"width": 0.5}))
    assert first.isdisjoint(keys(imagenet=("ntrm-paper",)))
    job = tiny_plan(archs=("ntrm-paper",), seeds=(0,), ablation=False).jobs[0]
    others = [
        plans.Job(job.variant, 1, job.recipe, job.fingerprint),
        plans.Job(job.variant, 0, load_recipe("paper"), job.fingerprint),
        plans.Job(job.variant, 0, job.recipe, "other data"),
    ]
    assert len({job.key, *(other.key for other in others)}) == 4
    # Folders from before recipes had ``fill`` keep their names where it is off.
    variant = plans.Variant("ntrm-paper", (), "10x", "scratch")
    before = plans.Job(variant, 0, load_recipe("fast"), "abc")
    assert before.key == "ntrm-paper_10x_scratch_seed0_95f31821bd"
    assert plans.Job(variant, 0, replace(before.recipe, fill=0.35), "abc").key != before.key
    # How windows are read does not touch the result.
    elsewhere = replace(job.recipe, workers=3, resident="no")
    assert plans.Job(job.variant, 0, elsewhere, job.fingerprint).key == job.key
    assert all(character.isalnum() or character in "-_." for character in job.key)


def test_options_go_to_the_networks_that_take_them():
    plan = tiny_plan(options={"width": 0.25, "dim": 32}, seeds=(0,), ablation=False)
    options = {variant.arch: dict(variant.options) for variant in plan.variants}
    assert options["ntrm-paper"] == {"width": 0.25, "dim": 32}
    assert options["ntrm-control"] == options["mit-b2"] == options["attention-unet"] == {"width": 0.25}
    assert taken("ntrm-control", {"coarse": "d2", "masks": "soft"}) == {"coarse": "d2"}
    with pytest.raises(UsageError, match="no network takes the option"):
        tiny_plan(options={"wdith": 0.25})


def test_without_transformers_the_mix_transformer_is_left_out_and_without_ntrm_the_claims_each_with_a_note(monkeypatch):
    plan = tiny_plan(archs=("unet-resnet18", "mit"), seeds=(0,))
    assert plan.ours is None
    assert plan.ablation == plan.resolutions == ()
    assert [variant.arch for variant in plan.variants] == ["unet-resnet18", "mit-b2"]
    assert "no claims" in plan.notes[0]
    monkeypatch.setattr(plans, "find_spec", lambda name: None)
    plan = tiny_plan(ablation=False)
    assert "mit-b2" not in {variant.arch for variant in plan.variants}
    assert "transformers" in plan.notes[0]
    with pytest.raises(UsageError, match="transformers is missing"):
        tiny_plan(archs=("mit",))
    for seeds in ((), (0, 0), (-1,), (2**63,)):
        with pytest.raises(UsageError, match="impossible seed"):
            tiny_plan(seeds=seeds)


def test_the_default_is_planned_as_the_network_that_it_is():
    plan = tiny_plan(archs=("ntrm", "ntrm-paper", "unet-resnet18"), seeds=(0,))
    assert [variant.arch for variant in plan.systems] == ["ntrm-paper", "unet-resnet18"]
    assert plan.notes == ("ntrm is ntrm-paper in this version of ntrm.",)
    assert (plan.ours, plan.control.arch) == (plan.systems[0], "ntrm-control")
    assert len(tiny_plan(archs=("ntrm",), seeds=(0,), ablation=False).jobs) == 2  # its control is trained, too
    with pytest.raises(UsageError, match=r"no network takes the option\n.*masks"):
        tiny_plan(archs=("ntrm-control",), options={"masks": "soft"})


def test_every_system_of_the_paper_is_a_network_with_a_title_and_the_gains_that_its_abstract_states():
    assert set(SYSTEMS) <= set(ARCHITECTURES) <= set(TITLES)
    assert set(SYSTEMS) - set(TABLE_1) == {"mit-b2"}
    least, *_, most = dice_gains()  # "4.9 % to 31.25 % higher" are points, and the first is rounded
    assert (round(least, 1), round(most, 2)) == (4.9, 31.25)


def request(data, out, **changes):
    settings = {"steps": 2, "batch": 2, "window": 64, "overlap": 0}
    wanted = {"archs": ("ntrm-paper",), "seeds": (0,), "options": {"width": 0.125}, "ablation": False}
    return Request(data, out, overrides=settings, **{**wanted, **changes})


def test_levels_are_the_papers_or_those_wanted_coarsest_first(stripes, tmp_path):
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
    assert request(data, tmp_path / "out", resolutions=("5x", "10x")).levels == ("10x", "5x")
    assert request(data, tmp_path / "out", resolutions=("10x",)).plan().notes == ()
    with pytest.raises(UsageError, match="no such resolution"):
        _ = request(data, tmp_path, resolutions=("2x",)).levels
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
    assert load_recipe(given["recipe"]).as_dict() == job.recipe.as_dict()
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
    lines = request(stripes, tmp_path / "out a", resolutions=("10x",)).commands_left()
    assert len(lines) == 2  # NTRM and its control
    for line in lines:
        train, evaluate = (shlex.split(command) for command in line.split(" && "))
        assert (train[:2], evaluate[:2]) == (["ntrm", "train"], ["ntrm", "evaluate"])
        assert load_recipe(train[train.index("--recipe") + 1]).steps == 2
        assert evaluate[evaluate.index("--model") + 1] == train[train.index("--out") + 1] + "/model"
