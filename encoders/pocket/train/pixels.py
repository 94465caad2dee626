"""Pictures as the vision tower takes them, made faster than by the image processor and equal to it."""

import numpy as np
import torch
from PIL import Image

from mmspec.encoders.pocket.architecture import MERGE_SIZE, PATCH_SIZE

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
_TEMPORAL_PATCH = 2


def patchify(pictures: list[Image.Image]) -> tuple[torch.Tensor, torch.Tensor]:
    """RGB pictures of one size, sides multiples of 28 pixels.

    Returns:
        Patches [pictures x patches, channels x 2 x 14 x 14] and the grid [pictures, 3] of time, height and width.
    """
    raw = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures])).float() / 255
    pixels = ((raw - torch.tensor(MEAN)) / torch.tensor(STD)).permute(0, 3, 1, 2)
    count, channels, height, width = pixels.shape
    rows, columns = height // PATCH_SIZE, width // PATCH_SIZE
    tiles = pixels.reshape(
        count,
        channels,
        rows // MERGE_SIZE,
        MERGE_SIZE,
        PATCH_SIZE,
        columns // MERGE_SIZE,
        MERGE_SIZE,
        PATCH_SIZE,
    ).permute(0, 2, 5, 3, 6, 1, 4, 7)
    patches = tiles.unsqueeze(6).expand(*tiles.shape[:6], _TEMPORAL_PATCH, *tiles.shape[6:])
    grid = torch.tensor([[1, rows, columns]]).repeat(count, 1)
    return patches.reshape(count * rows * columns, -1), grid
