from dataclasses import replace

import pytest
from tests.paper.synthetic import tiny_plan

from ntrm.core.errors import UsageError
from ntrm.models.registry import ARCHITECTURES
from ntrm.paper import plan as plans
from ntrm.paper.plan import FACTORS, taken
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


def test_without_transformers_the_mix_transformer_is_left_out_with_a_note(monkeypatch):
    monkeypatch.setattr(plans, "find_spec", lambda name: None)
    plan = tiny_plan(ablation=False)
    assert "mit-b2" not in {variant.arch for variant in plan.variants}
    assert "transformers" in plan.notes[0]
    with pytest.raises(UsageError, match="transformers is missing"):
        tiny_plan(archs=("mit",))


def test_without_ntrm_there_are_no_claims_and_no_ablation():
    plan = tiny_plan(archs=("unet-resnet18", "mit"), seeds=(0,))
    assert plan.ours is None
    assert plan.ablation == plan.resolutions == ()
    assert [variant.arch for variant in plan.variants] == ["unet-resnet18", "mit-b2"]
    assert "no claims" in plan.notes[0]


def test_the_default_is_planned_as_the_network_that_it_is():
    plan = tiny_plan(archs=("ntrm", "ntrm-paper", "unet-resnet18"), seeds=(0,))
    assert [variant.arch for variant in plan.systems] == ["ntrm-paper", "unet-resnet18"]
    assert plan.notes == ("ntrm is ntrm-paper in this version of ntrm.",)
    assert (plan.ours, plan.control.arch) == (plan.systems[0], "ntrm-control")
    assert len(tiny_plan(archs=("ntrm",), seeds=(0,), ablation=False).jobs) == 2  # its control is trained, too
    with pytest.raises(UsageError, match=r"no network takes the option\n.*masks"):
        tiny_plan(archs=("ntrm-control",), options={"masks": "soft"})


@pytest.mark.parametrize("seeds", [(), (0, 0), (-1,), (2**63,)])
def test_impossible_seeds_are_refused(seeds):
    with pytest.raises(UsageError, match="impossible seed"):
        tiny_plan(seeds=seeds)


def test_every_system_of_the_paper_is_a_network_with_a_title_and_the_gains_that_its_abstract_states():
    assert set(SYSTEMS) <= set(ARCHITECTURES) <= set(TITLES)
    assert set(SYSTEMS) - set(TABLE_1) == {"mit-b2"}
    least, *_, most = dice_gains()  # "4.9 % to 31.25 % higher" are points, and the first is rounded
    assert (round(least, 1), round(most, 2)) == (4.9, 31.25)
