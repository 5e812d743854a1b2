"""Writes jpeg/ and jpeg.json: JPEGs of awkward sizes in every subsampling, coding and range of qualities, and the CRC-32 of what Pillow's
Image.open(file).convert("RGB") makes of each. Pillow decodes with libjpeg-turbo.

    python make_jpeg.py        (Pillow 13.0.0, numpy)
"""

import io
import json
import pathlib
import zlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
SIDES = [1, 7, 8, 15, 16, 17, 63, 65]
QUALITIES = [1, 5, 25, 50, 75, 85, 95, 100]
RNG = np.random.default_rng(20261128)


def picture(width, height):
    """Waves with sharp edges and noise, so that coefficients of all sizes occur."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 127 * np.sin((x * (c + 1) + y * (3 - c)) / 5.0) for c in range(3)]
    out = np.stack(planes, -1)
    out[height // 3: height // 2 + 1, width // 4: width // 2 + 1] = RNG.integers(0, 256, 3)
    out += RNG.integers(-20, 21, out.shape)
    return Image.fromarray(np.clip(out, 0, 255).astype(np.uint8))


def encoded(image, **options):
    buffer = io.BytesIO()
    image.save(buffer, "jpeg", **options)
    return buffer.getvalue()


def resampled(data, width, height, factors):
    """A JPEG with the size and the first component's sampling factors replaced. MCUs must have as many blocks as before."""
    data = bytearray(data)
    frame = data.index(b"\xff\xc0")
    data[frame + 5: frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    data[frame + 11] = factors[0] << 4 | factors[1]
    return bytes(data)


def up(n, step):
    return -(-n // step)


def make(width, height, sampling, coding, quality):
    options = {"quality": quality, **coding}
    if sampling == "grey":
        return encoded(picture(width, height).convert("L"), **options)
    if sampling == "rgb":
        return encoded(picture(width, height), keep_rgb=True, **options)
    if sampling == "440":
        image = picture(16 * up(width, 8), 8 * up(height, 16))
        return resampled(encoded(image, subsampling="4:2:2", **options), width, height, (1, 2))
    if sampling == "411":
        image = picture(16 * up(width, 32), 16 * up(height, 8))
        return resampled(encoded(image, subsampling="4:2:0", **options), width, height, (4, 1))
    named = {"444": "4:4:4", "422": "4:2:2", "420": "4:2:0"}[sampling]
    return encoded(picture(width, height), subsampling=named, **options)


def main():
    folder = HERE / "jpeg"
    folder.mkdir(exist_ok=True)
    codings = {"baseline": {}, "progressive": {"progressive": True}, "restarts": {"restart_marker_blocks": 2},
               "progressive-restarts": {"progressive": True, "restart_marker_blocks": 3}}
    goldens = []
    number = 0
    for s, sampling in enumerate(["grey", "rgb", "444", "422", "420", "440", "411"]):
        names = ["baseline", "restarts"] if sampling in ("440", "411") else list(codings)
        for index, width in enumerate(SIDES):
            height = SIDES[(3 * index + s) % len(SIDES)]
            name = names[number % len(names)]
            quality = QUALITIES[(number * 3 + s) % len(QUALITIES)]
            number += 1
            data = make(width, height, sampling, codings[name], quality)
            file = f"{sampling}-{width}x{height}-{name}-{quality}.jpg"
            (folder / file).write_bytes(data)
            image = Image.open(io.BytesIO(data)).convert("RGB")
            assert image.size == (width, height)
            goldens.append({"file": file, "width": width, "height": height, "crc32": zlib.crc32(image.tobytes())})
    rows = ",\n".join(json.dumps(golden) for golden in goldens)
    (HERE / "jpeg.json").write_text(f"[\n{rows}\n]\n")


main()
