import pytest

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import SKIN
from ntrm.models import weights
from ntrm.models.encoders import ResNetEncoder
from ntrm.reproduction.request import Request, dry_run, encoder_init, parse_seeds
from ntrm.training.recipe import load_recipe


def request(data, out, **changes):
    settings = {"steps": 2, "batch": 2, "window": 64, "overlap": 0}
    wanted = {"archs": ("ntrm-paper",), "seeds": (0,), "options": {"width": 0.125}, "ablation": False}
    return Request(data, out, overrides=settings, **{**wanted, **changes})


def test_a_dry_run_plans_for_the_data_and_writes_nothing(stripes, tmp_path):
    plan, done = dry_run(request(stripes, tmp_path / "out"))
    assert [variant.level for variant in plan.resolutions] == ["10x", "5x"]
    assert done == dict.fromkeys([job.key for job in plan.jobs], False)
    assert not (tmp_path / "out").exists()


def test_keys_are_the_same_before_and_after_the_data_was_gathered(stripes, tmp_path):
    wanted = request(stripes, tmp_path / "out", resolutions=("10x",))
    before = [job.key for job in dry_run(wanted)[0].jobs]
    facts = wanted.gather()
    assert [job.key for job in wanted.plan({"10x": facts["10x"].fingerprint}).jobs] == before
    assert [job.key for job in dry_run(wanted)[0].jobs] == before


def test_options_must_be_plain(stripes, tmp_path):
    with pytest.raises(UsageError, match="impossible value of the option width"):
        dry_run(request(stripes, tmp_path, options={"width": [1]}))


@pytest.mark.parametrize("named", ["auto", "imagenet"])
def test_encoders_start_from_imagenet_where_the_weights_are_there(named, tmp_path, monkeypatch):
    from safetensors.torch import save_file

    monkeypatch.setenv("NTRM_WEIGHTS", str(tmp_path))
    recipe = load_recipe("fast", {"encoder_weights": named})
    assert encoder_init("unet-resnet18", {}, recipe, SKIN) == "scratch"
    state = {key: value.contiguous() for key, value in ResNetEncoder("resnet18", 1.0).state_dict().items()}
    save_file(state, tmp_path / "resnet18-imagenet.safetensors")
    assert weights.weights_folder() == tmp_path
    assert encoder_init("unet-resnet18", {}, recipe, SKIN) == "imagenet"
    assert encoder_init("unet-resnet18", {"width": 0.125}, recipe, SKIN) == "scratch"
    assert encoder_init("attention-unet", {"width": 0.125}, recipe, SKIN) == "scratch"
    given = load_recipe("fast", {"encoder_weights": str(tmp_path / "resnet18-imagenet.safetensors")})
    assert encoder_init("unet-resnet18", {}, given, SKIN) == "file"
    assert encoder_init("attention-unet", {"width": 0.125}, given, SKIN) == "scratch"


def test_a_wrong_option_is_no_missing_file():
    with pytest.raises(UsageError):
        encoder_init("ntrm-paper", {"width": 0.125, "masks": "hairy"}, load_recipe("fast"), SKIN)


def test_seeds_are_whole_numbers():
    assert parse_seeds("0, 3") == (0, 3)
    with pytest.raises(UsageError, match="cannot understand the seeds"):
        parse_seeds("0,one")


def test_a_folder_without_data_is_refused(tmp_path):
    with pytest.raises(DataError):
        dry_run(request(tmp_path / "nothing", tmp_path / "out"))
