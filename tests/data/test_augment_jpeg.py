import io
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.pictures import tissue_like, to_picture, to_tensor

from ntrm.data.augment import compress


def psnr(a, b):
    return 10 * math.log10(255**2 / max(np.mean((a.astype(float) - b.astype(float)) ** 2), 1e-12))


def jpeg_with_pillow(picture, quality):
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream))


@pytest.mark.parametrize("quality", [10, 50, 70, 90, 100])
def test_jpeg_agrees_with_pillow(quality, random):
    picture = tissue_like(random)
    ours = to_picture(compress(to_tensor(picture), torch.tensor([float(quality)])))
    theirs = jpeg_with_pillow(picture, quality)
    assert psnr(ours, theirs) > 38
    # It is the same loss, not merely a small one.
    assert psnr(ours, picture) == pytest.approx(psnr(theirs, picture), abs=0.5)


def test_jpeg_takes_a_quality_per_sample(random):
    pictures = to_tensor(tissue_like(random)).repeat(2, 1, 1, 1)
    both = compress(pictures, torch.tensor([30.0, 90.0]))
    assert torch.equal(both[1:], compress(pictures[1:], torch.tensor([90.0])))
    assert (both[0] - pictures[0]).square().mean() > 2 * (both[1] - pictures[1]).square().mean()


def test_jpeg_of_real_tissue_agrees_with_pillow():
    folder = os.environ.get("NTRM_REAL_DATA")
    if not folder:
        pytest.skip("NTRM_REAL_DATA names no folder with real images")
    path = min(Path(folder, "glas", "Images").iterdir())
    picture = np.array(Image.open(path).convert("RGB"))
    for quality in (50, 70, 90):
        ours = to_picture(compress(to_tensor(picture), torch.tensor([float(quality)])))
        assert psnr(ours, jpeg_with_pillow(picture, quality)) > 38, f"{path.name} at {quality}"
