import pytest

from ntrm.core.errors import RefusedError
from ntrm.core.mpp import Resolution
from ntrm.wsi.grid import check_cost, cost_of
from ntrm.wsi.readers.reader import SlideInfo, SlideLevel

FINE, MODEL = Resolution.square(0.25), 6.7
GB = 10**9


def slide(width, height, factors=(1,), vendor="tiff", bounds=None):
    levels = tuple(SlideLevel(-(-width // k), -(-height // k), float(k)) for k in factors)
    return SlideInfo("tifffile", vendor, levels, (0.25, 0.25), bounds)


PYRAMID = (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize(
    ("info", "mpp", "model_mpp", "size"),
    [
        pytest.param(slide(200_000, 100_000, PYRAMID), FINE, MODEL, GB, id="a glass at 40x"),
        pytest.param(slide(200_000, 100_000, PYRAMID), FINE, 0.25, GB, id="for a fine model"),
        pytest.param(slide(200_000, 100_000), FINE, MODEL, GB, id="without coarse levels"),
        pytest.param(slide(400_000, 200_000, PYRAMID), Resolution.square(0.12), 0.25, GB, id="at 80x"),
        pytest.param(slide(262_144, 262_144, PYRAMID), FINE, MODEL, 10**5, id="nearly all glass, with its levels"),
        pytest.param(slide(200_000, 100_000, PYRAMID, "mirax"), FINE, 0.25, 10**5, id="in several files"),
        pytest.param(slide(262_144, 262_144, bounds=(5, 5, 9_000, 9_000)), FINE, MODEL, 10**5, id="a scanned part"),
        pytest.param(slide(15_000, 15_000), Resolution.square(6.7), MODEL, 10**5, id="a section of ten centimetres"),
    ],
)
def test_slides_as_scanners_make_them_are_not_refused(info, mpp, model_mpp, size):
    check_cost(info, mpp, model_mpp, size)


@pytest.mark.parametrize(
    ("info", "mpp", "size", "what"),
    [
        pytest.param(slide(262_144, 262_144), FINE, 66_000, "would have to be read", id="66 kB, every pixel to read"),
        pytest.param(slide(262_144, 262_144), FINE, 100 * GB, "would have to be read", id="however large the file"),
        pytest.param(slide(100_000, 100_000), FINE, 10**6, "more pixels than its file", id="few bytes"),
        pytest.param(slide(100_000, 100_000), Resolution.square(6.7), GB, "larger than any glass", id="0.67 m wide"),
        pytest.param(slide(2**24, 2**24, PYRAMID), FINE, GB, "larger than any glass", id="4 m wide"),
    ],
)
def test_what_would_take_minutes_for_nothing_is_refused_with_a_hint(info, mpp, size, what):
    with pytest.raises(RefusedError, match=what) as caught:
        check_cost(info, mpp, MODEL, size)
    assert caught.value.got
    assert caught.value.expected
    assert caught.value.hint


def test_costs_are_the_pixels_of_the_levels_that_are_read():
    # 26.8 and 53.6 times coarser than the slide: from levels 16 and 32.
    wide, tall = 64_000, 32_000
    coarse = -(-wide // 53.6) * -(-tall // 53.6)
    assert cost_of(slide(wide, tall, PYRAMID), FINE, MODEL) == (coarse, 2000 * 1000 + 4000 * 2000)
    assert cost_of(slide(wide, tall), FINE, MODEL) == (coarse, 2 * wide * tall)
    # Where the model is finer than the slide, its grid counts.
    assert cost_of(slide(1000, 1000), FINE, 0.125)[1] == 1000 * 1000 + 2000 * 2000
