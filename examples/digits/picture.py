"""Write grey images with captions as an SVG file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

PIXEL = 10  # points per pixel of an image
GAP = 20  # points between images
CAPTION = 20  # points from an image to its caption


def write_picture(path: Path, images: np.ndarray, captions: list[str]) -> None:
    """Write images (count, height, width) side by side; 0 is white and 1 is black."""
    height, width = (PIXEL * size for size in images.shape[1:])
    shapes = []
    for index, (image, caption) in enumerate(zip(images, captions, strict=True)):
        left = GAP + index * (width + GAP)
        shapes.append(f'<rect x="{left}" y="{GAP}" width="{width}" height="{height}" fill="none" stroke="#888"/>')
        for (row, column), ink in np.ndenumerate(image):
            if ink > 0:
                grey = round(255 * (1 - ink))
                shapes.append(
                    f'<rect x="{left + PIXEL * column}" y="{GAP + PIXEL * row}" width="{PIXEL}" height="{PIXEL}"'
                    f' fill="#{grey:02x}{grey:02x}{grey:02x}"/>'
                )
        middle, below = left + width // 2, GAP + height + CAPTION
        shapes.append(f'<text x="{middle}" y="{below}" text-anchor="middle">{caption}</text>')
    size = f'width="{GAP + len(captions) * (width + GAP)}" height="{2 * GAP + height + CAPTION}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    path.write_text("\n".join([opening, background, *shapes, "</svg>", ""]))
