"""The study of what carries over to real skin: laying tiles together, scoring, colours, normal sections, the plan."""

import numpy as np
import pytest
import torch
from PIL import Image
from research.basket_weave import loosen
from research.carry_over import choose
from research.colouring import PARTS, Colouring, take_tiles_away
from research.phantom_sections import COUNTS, Sections, normal_mask, plan_sheets
from research.real_skin import spread
from research.section_textures import painted
from research.skin_pas import LENIENT, STRICT, TISSUES, Laid, confusion, lay, score, tissue_ious
from research.slide_colours import MOVES, as_segmented, macenko, recoloured, tissue_densities
from research.surface_context import fillings, phantom_epidermis
from research.training_arms import ARMS, SCREENING, Arm, arm_named, read_plan

from ntrm.core.labels import CANCERS, IGNORE, SKIN
from ntrm.data.stains import Stains
from ntrm.models.base import Segmentation
from ntrm.phantom.anatomy.layers import SkinParameters
from ntrm.phantom.render import Artefacts, render
from ntrm.phantom.stain import Stain
from ntrm.phantom.texture.table import TEXTURES


def write_tile(folder, name, colour, label):
    (folder / "Images").mkdir(parents=True, exist_ok=True)
    (folder / "Masks").mkdir(exist_ok=True)
    Image.new("RGB", (512, 512), colour).save(folder / "Images" / f"{name}.jpg")
    Image.new("L", (512, 512), label).save(folder / "Masks" / f"{name}.png")


@pytest.fixture
def tiles(tmp_path):
    (tmp_path / "classes.csv").write_text("index,name,r,g,b\n0,DER,1,1,1\n1,EPI,2,2,2\n2,DEJ,3,3,3\n3,BKG,4,4,4\n")
    for name, colour, label in (
        ("A_01024_00512", (200, 100, 150), 0),
        ("A_02048_00512", (90, 60, 140), 1),
        ("A_02048_01024", (90, 60, 140), 2),
        ("B_00000_00000", (0, 0, 0), 1),
    ):
        write_tile(tmp_path, name, colour, label)
    return tmp_path


def test_tiles_lie_at_their_places_with_glass_and_no_truth_between_them(tiles):
    laid = lay(tiles, "A", 16.0, rim_um=0)  # 8 pixels a tile
    assert laid.image.shape == (16, 24, 3)
    expected = np.full((16, 24), IGNORE)
    expected[:8, :8], expected[:8, 16:] = TISSUES.index("dermis"), TISSUES.index("epidermis")
    assert (laid.truth == expected).all()  # the junction is ignored
    assert laid.there.sum() == 3 * 64
    assert (laid.image[~laid.there] == 255).all()
    assert np.abs(laid.image[laid.truth == 1].astype(int) - (90, 60, 140)).max() <= 3


def test_a_rim_of_glass_goes_around_a_section_and_it_is_read_as_it_was_kept(tiles, tmp_path):
    laid = lay(tiles, "B", 16.0, rim_um=32)
    laid.save(tmp_path / "kept.npz")
    again = Laid.read(tmp_path / "kept.npz")
    assert again.mpp == 16.0
    assert again.image.shape == (12, 12, 3)
    assert np.argwhere(again.there).min(axis=0).tolist() == [2, 2]
    assert (again.truth == laid.truth).all()


def test_missing_places_are_filled_with_dermis_or_a_mirror_and_known_ones_stay(tiles):
    laid = lay(tiles, "A", 16.0, rim_um=64)
    pictures = fillings(laid)
    assert all((picture[laid.there] == laid.image[laid.there]).all() for picture in pictures.values())
    below, above = np.s_[14, 8], np.s_[2, 22]  # the tile of dermis, the upper one of epidermis
    assert (pictures["glass"][below] == 255).all()
    assert np.abs(pictures["dermis"][below].astype(int) - (200, 100, 150)).max() <= 3
    assert (pictures["dermis"][above] == 255).all()
    assert np.abs(pictures["mirrored"][above].astype(int) - (90, 60, 140)).max() <= 3


class ByGlass(torch.nn.Module):
    """Epidermis where there is glass within ten pixels, BCC elsewhere."""

    def forward(self, x, coarse):
        near = torch.nn.functional.max_pool2d(x[:, :1], 21, stride=1, padding=10) > 2
        logits = torch.zeros(len(x), len(SKIN), *x.shape[-2:])
        logits[:, SKIN.index("EPI")], logits[:, SKIN.index("BCC")] = near[:, 0].float(), (~near[:, 0]).float()
        return Segmentation(logits)


def test_a_network_that_goes_by_glass_is_found_out_by_the_mirror():
    mask = torch.full((40, 40), SKIN.index("EPI"), dtype=torch.uint8)
    mask[:4] = SKIN.index("BKG")
    image = torch.where(mask == SKIN.index("BKG"), 255, 100).byte().expand(3, -1, -1)
    shares = phantom_epidermis(ByGlass(), Sections([image], [mask]), 6.7)
    assert shares["as it is"][SKIN.index("EPI")] > 0.2
    assert shares["mirrored"][SKIN.index("EPI")] < shares["as it is"][SKIN.index("EPI")]
    assert sum(shares["mirrored"]) == pytest.approx(1)


def test_follicle_is_epidermis_by_the_lenient_mapping_alone():
    truth = np.repeat(np.arange(4, dtype=np.uint8), 2)
    names = ["RET", "HYP", "EPI", "FOL", "KER", "KER", "BKG", "BCC"]
    table = confusion(truth, np.array([SKIN.index(name) for name in names], dtype=np.uint8))
    assert tissue_ious(table, LENIENT) == dict(zip(TISSUES, (1.0, 1.0, 1.0, 0.5), strict=True))
    assert tissue_ious(table, STRICT) == dict(zip(TISSUES, (0.5, 0.5, 1.0, 0.5), strict=True))


def test_cancer_is_wrong_wherever_it_is_named():
    truth = np.full((40, 40), TISSUES.index("epidermis"), dtype=np.uint8)
    truth[:20] = TISSUES.index("dermis")
    truth[0, 0], truth[0, 1] = TISSUES.index("keratin"), TISSUES.index("background")
    laid = Laid(np.zeros((40, 40, 3), np.uint8), truth, np.ones((40, 40), bool), 6.7)
    predicted = np.full((40, 40), SKIN.index("BCC"), dtype=np.uint8)
    found = score(laid, predicted, np.ones((40, 40), np.float32))
    assert (found["iou"], found["epidermis_cancer"], found["tissue_cancer"]) == (0.0, 1.0, 1.0)
    assert found["named"] == ["BCC"]


@pytest.mark.parametrize("part", [*PARTS, "tissue", "weave"])
def test_every_part_of_the_colouring_changes_pictures_and_keeps_them_in_range(part, random):
    images = torch.from_numpy(random.uniform(0.2, 0.9, (8, 3, 32, 32))).float()
    masks = torch.full((8, 32, 32), SKIN.index("KER"), dtype=torch.uint8)
    changed = Colouring(**{part: 1.0}, share=1.0)(images, masks, torch.Generator().manual_seed(1))
    assert not torch.equal(changed, images)
    assert changed.min() >= 0
    assert changed.max() <= 1


def test_without_strength_or_share_nothing_is_recoloured(random):
    images = torch.from_numpy(random.uniform(0, 1, (2, 3, 32, 32))).float()
    for colouring in (Colouring(), Colouring(mix=1.0, gain=1.0, share=0.0)):
        assert torch.equal(colouring(images, None, torch.Generator().manual_seed(1)), images)


def test_where_a_tile_is_taken_away_there_is_glass_and_nothing_is_known():
    images, masks = torch.zeros(4, 3, 64, 64), torch.zeros(4, 64, 64, dtype=torch.uint8)
    less, unknown = take_tiles_away(images, masks, torch.Generator().manual_seed(1), (8, 16), share=1.0)
    gone = unknown == IGNORE
    assert 0 < gone.float().mean() < 1
    assert torch.equal(gone, (less == 1).all(dim=1))
    assert unknown.dtype == masks.dtype


def test_a_normal_section_has_skin_and_no_cancer():
    mask = normal_mask(7, "IEC", 30.0, SkinParameters())
    found = {SKIN.names[index] for index in np.unique(mask)}
    assert {"EPI", "RET", "KER"} <= found
    assert not found & set(CANCERS)


def test_keratin_at_a_surface_becomes_strands_and_keratin_within_a_tumour_stays():
    ker, epi, glass = (SKIN.index(name) for name in ("KER", "EPI", "BKG"))
    mask = np.full((60, 80), epi, dtype=np.uint8)
    mask[:20], mask[20:32], mask[45:50, 30:40] = glass, ker, ker
    image = np.select([mask[..., None] == glass, mask[..., None] == ker], [250, 120], 160).astype(np.uint8)
    image = np.broadcast_to(image, (60, 80, 3))
    woven, grown = loosen(image, mask, 6.7, seed=3)
    assert (woven[45:50, 30:40] == 120).all()
    assert (grown[mask != glass] == mask[mask != glass]).all()
    assert set(np.unique(grown[mask == glass])) <= {glass, ker}
    assert (woven[grown == epi] == 160).all()
    assert woven[grown == ker].std() > 10


def darkness(tissue, *looks, seed=4):
    """Mean optical density of a sheet of one tissue."""
    mask = np.full((48, 48), SKIN.index(tissue), dtype=np.uint8)
    with painted(looks, seed):
        picture = render(mask, 6.7, seed=1, stain=Stain(), artefacts=Artefacts.none())
    return float(-np.log10((picture.astype(float) + 1) / 256).mean())


def test_a_look_changes_its_own_tissues_and_only_while_a_section_is_painted():
    before = dict(TEXTURES)
    assert darkness("RET", "loose") < 0.9 * darkness("RET")
    assert darkness("EPI", "loose") == darkness("EPI")
    assert darkness("RET", "dark") == darkness("RET")
    assert before == TEXTURES


def test_dark_sections_have_epidermis_paler_and_darker_than_a_carcinoma():
    lighter = [darkness("EPI", "dark", seed=seed) < darkness("BCC", "dark", seed=seed) for seed in range(12)]
    assert 0 < sum(lighter) < 12


@pytest.mark.parametrize("name", sorted(set(MOVES) - {"strength"}))
def test_a_slide_gets_mean_and_spread_of_the_reference_and_glass_stays_glass(name, random):
    slide = torch.from_numpy(random.integers(90, 150, (3, 64, 64))).byte()
    slide[:, :8] = 255
    reference = tissue_densities([torch.from_numpy(random.integers(60, 200, (3, 64, 64))).byte()])
    moved = recoloured(slide, reference, MOVES[name])
    assert (moved[:, :8] == 255).all()
    found = tissue_densities([moved[:, 8:]])
    assert torch.allclose(found.mean(0), reference.mean(0), atol=0.05)
    assert torch.allclose(found.std(0), reference.std(0), rtol=0.15)


def test_a_slide_stained_like_the_reference_keeps_its_stains(random):
    stains = torch.tensor([[0.65, 0.07], [0.70, 0.99], [0.29, 0.11]])
    amounts = torch.from_numpy(random.uniform(0.1, 1.2, (2, 64 * 64))).float()
    slide = (255 * (-stains @ amounts).exp()).round().byte().view(3, 64, 64)
    again = macenko(slide, tissue_densities([slide]))
    assert (again.int() - slide.int()).abs().float().mean() < 3


def test_a_slide_as_ntrm_segment_shows_it_has_the_strength_of_the_training_sections():
    slide = torch.full((3, 120, 120), 255, dtype=torch.uint8)
    slide[:, 30:90, 30:90] = torch.tensor([200, 100, 160], dtype=torch.uint8)[:, None, None]
    moved = as_segmented(slide, Stains((0.5, 0.6, 0.2), None, None), "strength")
    assert (moved[:, :20] == 255).all()
    assert tissue_densities([moved]).mean(0).tolist() == pytest.approx([0.5, 0.6, 0.2], abs=0.01)


def test_a_plan_names_arms_levels_and_seeds():
    jobs = read_plan("full:10x:0,1 recipe:5x:2")
    assert [job.name for job in jobs] == ["full_10x_0", "full_10x_1", "recipe_5x_2"]
    with pytest.raises(SystemExit, match="unknown arm"):
        read_plan("fulll:10x:0")
    with pytest.raises(SystemExit, match="unknown level"):
        read_plan("full:20x:0")
    assert all(arm.batch % 2 == 0 for arm in ARMS.values())


def test_words_before_and_behind_an_arm_change_it():
    arm = arm_named("long3-paper-gain+mix+loose+strands+normal+seldom+noise")
    assert (arm.arch, arm.steps, arm.batch) == ("ntrm-paper", 9000, 32)
    assert arm.besides == ("loose-strands", "varied-loose-strands")
    assert arm.colour == Colouring(gain=1.0, mix=1.0, noise=1.0, share=0.4)
    assert arm_named("long-half+strands") == ARMS["half+strands"].long()
    assert arm_named("wide-long-full") == Arm(Colouring.full(), width=1.0, weights=True).long()
    assert set(arm.besides) <= set(COUNTS["10x"])


def test_half_of_the_screening_has_each_word_and_no_two_words_go_together():
    words = ("loose", "dark", "strands", "normal", "seldom", "tissue")
    signs = np.array([[1 if word in name.split("+") else -1 for word in words] for name in SCREENING])
    assert (signs.T @ signs == len(SCREENING) * np.eye(len(words))).all()


def test_windows_come_from_other_sections_as_often_as_asked():
    chance = torch.Generator().manual_seed(1)
    chosen = choose(4000, own=10, every=15, share=0.4, chance=chance)
    assert float((chosen >= 10).float().mean()) == pytest.approx(0.4, abs=0.03)
    assert set(chosen.tolist()) == set(range(15))
    assert float((choose(4000, 10, 15, None, chance) >= 10).float().mean()) == pytest.approx(1 / 3, abs=0.03)


def test_no_section_of_the_validation_part_is_learned_from(tmp_path):
    sheets = plan_sheets(tmp_path, list(COUNTS))
    validation = ("val", "held-out", "second-val")
    learned = {sheet.section.seed for sheet in sheets if sheet.kind not in validation}
    scored = {sheet.section.seed for sheet in sheets if sheet.kind in validation}
    assert len(learned) > 500
    assert len(scored) > 80
    assert not learned & scored


def test_scores_are_written_with_their_spread():
    assert spread([0.5, 0.7]) == ".600 ± .141"
    assert spread([0.25]) == ".250"
