"""Random batches of images and masks."""

import torch


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def random_batch(generator, count=4, size=24, classes=12):
    images = torch.randint(0, 256, (count, 3, size, size), generator=generator, dtype=torch.uint8)
    blobs = torch.randint(0, classes, (count, size // 4, size // 4), generator=generator, dtype=torch.uint8)
    return images, blobs.repeat_interleave(4, 1).repeat_interleave(4, 2)
