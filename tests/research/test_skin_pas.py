"""Real skin: laying tiles together, and scoring."""

import numpy as np
import pytest
from PIL import Image
from research.skin_pas import LENIENT, STRICT, TISSUES, Laid, confusion, lay, score, tissue_ious

from ntrm.core.labels import IGNORE, SKIN


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
