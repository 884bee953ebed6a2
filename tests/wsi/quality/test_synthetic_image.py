import io

import numpy as np
import pytest
from PIL import Image
from tests.wsi.pictures import clean, skin_mask

from ntrm.core.labels import SKIN
from ntrm.data.resample import area_average
from ntrm.wsi.quality.checks import FLAGGED
from ntrm.wsi.quality.synthetic_image import COLOURS, LEAST_PIXELS, few_colours, flat_share

MASK = SKIN.colourise(skin_mask())


def compressed(picture, quality):
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, format="JPEG", quality=quality)
    with Image.open(stream) as image:
        return np.asarray(image)


def flat_by_hand(picture):
    """The same by comparing every pixel with its neighbours."""
    same, judged = 0, 0
    for y in range(1, picture.shape[0] - 1):
        for x in range(1, picture.shape[1] - 1):
            colour = picture[y, x].astype(int)
            if colour.max() == 0 or (colour.min() >= 180 and np.ptp(colour) <= 25):
                continue
            judged += 1
            same += bool((picture[y - 1 : y + 2, x - 1 : x + 2] == picture[y, x]).all())
    return same / judged if judged else 0.0


def test_flat_places_are_those_whose_neighbours_all_have_their_colour(random):
    blocks = random.integers(0, 4, (6, 5, 3), dtype=np.uint8) * 80
    picture = blocks.repeat(random.integers(1, 6, 6), axis=0).repeat(random.integers(1, 6, 5), axis=1)
    assert flat_share([picture]) == pytest.approx(flat_by_hand(picture))
    # Two pictures count by their pixels.
    noise = random.integers(0, 256, (30, 20, 3), dtype=np.uint8)
    assert flat_share([noise]) < 0.01
    assert flat_share([picture[:2], noise]) == flat_share([noise]), "what has no inside tells nothing"


def test_few_colours_cover_what_the_commonest_do(random):
    colours = random.permutation(256)[: COLOURS + 8]
    times = random.integers(50, 200, len(colours))
    pixels = np.stack([np.full(times.sum(), 99), np.repeat(colours, times), np.full(times.sum(), 7)], axis=1)
    picture = random.permutation(pixels).astype(np.uint8)[None]
    expected = np.sort(times)[-COLOURS:].sum() / times.sum()
    assert few_colours([picture]) == pytest.approx(expected)
    assert few_colours([picture[:, :400], picture[:, 400:]]) == pytest.approx(expected)
    assert few_colours([picture[:, : LEAST_PIXELS - 1]]) == 0.0
    assert few_colours([]) == 0.0


def test_masks_have_few_flat_colours_at_any_scale():
    assert few_colours([MASK]) == 1.0
    for factor in (1, 2, 3):
        assert flat_share([area_average(MASK, factor, factor)]) > 0.3
    labels = np.repeat(skin_mask()[..., None], 3, axis=2)
    assert few_colours([labels]) == 1.0, "bare indices, nearly black"


@pytest.mark.parametrize("quality", [None, 90, 50, 20])
def test_sections_have_not_even_when_they_were_compressed(seed, quality):
    picture = clean(seed, 6.7)
    picture = picture if quality is None else compressed(picture, quality)
    assert flat_share([picture]) < 0.01
    assert few_colours([picture]) < 0.7 * FLAGGED["drawn"]


def test_blank_glass_and_the_black_beside_it_are_not_drawn(random):
    flat = np.full((80, 90, 3), 244, dtype=np.uint8)
    noisy = random.normal(240, 2, (80, 90, 3)).astype(np.uint8)
    for glass in (flat, noisy):
        framed = np.pad(glass, ((9, 9), (9, 9), (0, 0)))
        assert [flat_share([each]) for each in (glass, framed)] == [0.0, 0.0]
        assert [few_colours([each]) for each in (glass, framed)] == [0.0, 0.0]
