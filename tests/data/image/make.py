"""Writes the sample images, and decode.json: the size and the CRC-32 of what Pillow's
Image.open(file).convert("RGB") makes of each. A JPEG's pixels depend on the decoder's arithmetic: libjpeg-turbo's.

    python make.py        (Pillow 13.0.0, numpy)
"""

import io
import json
import pathlib
import struct
import warnings
import zlib

import numpy as np
from PIL import Image
from noise import noise

HERE = pathlib.Path(__file__).parent
SAMPLES = HERE / "samples"
W, H = 37, 29
RNG = np.random.default_rng(20261121)


def smooth(width=W, height=H, channels=3):
    """A gradient with a few sharp edges and a little noise: it compresses, and lossy codecs have work to do."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 127 * np.sin((x * (c + 1) + y * (3 - c)) / 9.0) for c in range(channels)]
    out = np.stack(planes, -1)
    out[height // 3: height // 2, width // 4: width // 2] = RNG.integers(0, 256, channels)
    out += RNG.integers(-6, 7, out.shape)
    return np.clip(out, 0, 255).astype(np.uint8)


def write(name, data):
    (SAMPLES / name).write_bytes(data)


def save(name, image, **options):
    buffer = io.BytesIO()
    suffix = name.rsplit(".")[-1]
    image.save(buffer, {"jpg": "jpeg", "tif": "tiff"}.get(suffix, suffix), **options)
    write(name, buffer.getvalue())


# --- PNG --------------------------------------------------------------------------------------------------------

def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def packed(rows, depth):
    """[h, w] of small integers to rows of bits, the first pixel in the highest bits."""
    bits = np.unpackbits(rows.astype(np.uint8)[..., None], axis=-1)[..., 8 - depth:]
    return np.packbits(bits.reshape(rows.shape[0], -1), axis=1)


def png(samples, depth, color, extra=b"", interlace=False):
    """A PNG of [h, w, c] samples, unfiltered; `extra` are chunks before the pixels (palette, transparency)."""
    height, width = samples.shape[:2]

    def scanlines(part):
        if depth == 16:
            rows = part.astype(">u2").reshape(part.shape[0], -1).view(np.uint8)
        elif depth == 8:
            rows = part.astype(np.uint8).reshape(part.shape[0], -1)
        else:
            rows = packed(part[..., 0], depth)
        return b"".join(b"\0" + row.tobytes() for row in rows)

    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [samples[y::dy, x::dx] for y, x, dy, dx in passes] if interlace else [samples]
    raw = b"".join(scanlines(part) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlace))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(raw, 9))
            + chunk(b"IEND", b""))


def make_png():
    palette = RNG.integers(0, 256, 48, dtype=np.uint8).tobytes()
    plte, trns = chunk(b"PLTE", palette), chunk(b"tRNS", bytes([0, 128, 255, 3]))
    for interlace in (False, True):
        tag = "-interlaced" if interlace else ""
        for depth in (1, 2, 4, 8, 16):
            grey = RNG.integers(0, 2**depth, (H, W, 1))
            write(f"grey{depth}{tag}.png", png(grey, depth, 0, interlace=interlace))
        for depth in (1, 2, 4, 8):
            index = RNG.integers(0, min(2**depth, 16), (H, W, 1))
            write(f"palette{depth}{tag}.png", png(index, depth, 3, plte[:0] + chunk(b"PLTE", palette[:3 * 2**depth]),
                                                  interlace))
        for depth in (8, 16):
            for color, channels, kind in ((2, 3, "rgb"), (4, 2, "grey-alpha"), (6, 4, "rgba")):
                samples = RNG.integers(0, 2**depth, (H, W, channels))
                write(f"{kind}{depth}{tag}.png", png(samples, depth, color, interlace=interlace))
    index = RNG.integers(0, 16, (H, W, 1))
    write("palette8-transparent.png", png(index, 8, 3, plte + trns))
    write("palette8-short.png", png(index, 8, 3, chunk(b"PLTE", palette[:15])))
    write("palette8-grey-ramp.png", png(index, 8, 3, chunk(b"PLTE", bytes(v for i in range(16) for v in (i, i, i)))))
    grey = RNG.integers(0, 256, (H, W, 1))
    write("grey8-transparent.png", png(grey, 8, 0, chunk(b"tRNS", struct.pack(">H", int(grey[0, 0, 0])))))
    grey = RNG.integers(0, 600, (H, W, 1))
    write("grey16-dark-transparent.png", png(grey, 16, 0, chunk(b"tRNS", struct.pack(">H", 77))))
    rgb = RNG.integers(0, 256, (H, W, 3))
    write("rgb8-transparent.png", png(rgb, 8, 2, chunk(b"tRNS", struct.pack(">HHH", *map(int, rgb[0, 0])))))
    save("one-pixel.png", Image.new("RGB", (1, 1), (7, 200, 99)))
    save("thin.png", Image.fromarray(np.arange(20000 * 3).reshape(20000, 1, 3).astype(np.uint8)))
    save("filtered.png", Image.fromarray(smooth(64, 50)))
    save("gamma.png", Image.fromarray(smooth()), dpi=(72, 72), exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03"
         b"\0\0\0\x01\0\x06\0\0\0\0\0\0")
    frames = [Image.fromarray(smooth()) for _ in range(2)]
    save("animated.png", frames[0], save_all=True, append_images=frames[1:])
    save("animated-default.png", frames[0], save_all=True, append_images=frames[1:], default_image=True)


# --- JPEG -------------------------------------------------------------------------------------------------------

def adobe_transform(data, value):
    at = data.index(b"Adobe") + 11
    return data[:at] + bytes([value]) + data[at + 1:]


def without_adobe(data):
    at = data.index(b"\xff\xee")
    length = struct.unpack(">H", data[at + 2:at + 4])[0]
    return data[:at] + data[at + 2 + length:]


def segments(data, *markers):
    """Where each segment with one of these markers begins and ends, up to the first scan's data."""
    at = 2
    while data[at + 1] != 0xDA:
        end = at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
        if data[at + 1] in markers:
            yield at, end
        at = end
    if 0xDA in markers:
        yield at, at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]


def resampled(data, width, height, *factors, tables=(0x00, 0x11, 0x11)):
    """The same blocks under other sampling factors and as another size, which must give as many MCUs of as many blocks.
    `tables` are the Huffman tables of the components' blocks, which were those of other components."""
    at, end = next(segments(data, 0xDA))
    scan = bytearray(data[at:end])
    for index in range(scan[4]):
        scan[6 + 2 * index] = tables[scan[5 + 2 * index] - 1]
    data = data[:at] + bytes(scan) + data[end:]
    at, end = next(segments(data, 0xC0, 0xC1, 0xC2))
    frame = bytearray(data[at:end])
    frame[5:9] = struct.pack(">HH", height, width)
    for index, (h, v) in enumerate(factors):
        frame[11 + 3 * index] = h << 4 | v
    return data[:at] + bytes(frame) + data[end:]


def without_huffman_tables(data):
    for at, end in reversed(list(segments(data, 0xC4))):
        data = data[:at] + data[end:]
    return data


def separate_scans(*greys):
    """Of equally large grey JPEGs one image, with a sequential scan for each of its components."""
    first = greys[0]
    at, end = next(segments(first, 0xC0))
    listed = b"".join(bytes([index + 1, 0x11, 0]) for index in range(len(greys)))
    frame = first[at:at + 2] + struct.pack(">H", 8 + len(listed)) + first[at + 4:at + 9] + bytes([len(greys)]) + listed
    data = first[:at] + frame
    for index, grey in enumerate(greys):
        scan, coded = next(segments(grey, 0xDA))
        tables = b"".join(grey[at:end] for at, end in segments(grey, 0xC4))
        header = bytearray(grey[scan:coded])
        header[5] = index + 1
        data += tables + bytes(header) + grey[coded:-2]
    return data + b"\xff\xd9"


def make_jpeg_forms():
    """Whatever else libjpeg-turbo's arithmetic depends on: sampling factors, narrow chroma, sizes, kinds of scans."""
    rng = np.random.default_rng(20261122)

    def picture(width, height, channels=3):
        pixels = smooth(width, height, channels).astype(int) + rng.integers(-40, 41, (height, width, channels))
        pixels = np.clip(pixels, 0, 255).astype(np.uint8)
        return Image.fromarray(pixels[..., 0] if channels == 1 else pixels, "CMYK" if channels == 4 else None)

    def encoded(image, **options):
        buffer = io.BytesIO()
        image.save(buffer, "jpeg", **options)
        return buffer.getvalue()

    y420, y422 = encoded(picture(64, 48), quality=85), encoded(picture(64, 48), quality=85, subsampling=1)
    progressive = encoded(picture(64, 48), quality=85, progressive=True)
    one = (1, 1)
    write("sampling-440.jpg", resampled(y422, 31, 91, (1, 2), one, one))
    write("sampling-411.jpg", resampled(y420, 125, 23, (4, 1), one, one))
    write("sampling-1x4.jpg", resampled(y420, 29, 93, (1, 4), one, one))
    write("sampling-411-progressive.jpg", resampled(progressive, 128, 24, (4, 1), one, one, tables=(0x00, 0x10, 0x10)))
    luma_first = (0x00, 0x00, 0x11)
    write("sampling-crossed.jpg", resampled(y420, 63, 47, (1, 2), (2, 1), (2, 1), tables=luma_first))
    write("sampling-crossed-twice.jpg", resampled(y420, 62, 45, (2, 1), (1, 2), (1, 2), tables=luma_first))
    for width in (1, 2, 3, 4, 5, 6, 17):
        for sampling, tag in ((1, "422"), (2, "420")):
            write(f"narrow{width}-{tag}.jpg", encoded(picture(width, 19), quality=80, subsampling=sampling))
    write("restarts-420.jpg", encoded(picture(70, 50), quality=75, restart_marker_blocks=2))
    write("restarts-progressive.jpg", encoded(picture(70, 50), quality=75, restart_marker_blocks=5, progressive=True))
    write("quality1.jpg", encoded(picture(50, 50), quality=1))
    write("quality100.jpg", encoded(picture(50, 50), quality=100, subsampling=0))
    write("noise.jpg", encoded(Image.fromarray(rng.integers(0, 256, (50, 50, 3), dtype=np.uint8)), quality=95))
    write("optimized.jpg", encoded(picture(61, 45), quality=80, optimize=True))
    write("without-huffman-tables.jpg", without_huffman_tables(y420))
    greys = [encoded(picture(43, 37, 1), quality=85) for _ in range(4)]
    write("separate-scans.jpg", separate_scans(*greys[:3]))
    write("separate-scans-cmyk.jpg", separate_scans(*greys))
    write("ycck-progressive.jpg", adobe_transform(encoded(picture(64, 48, 4), quality=85, progressive=True), 2))
    write("cmyk-restarts.jpg", encoded(picture(64, 48, 4), quality=85, restart_marker_blocks=4))


def make_jpeg():
    rgb = Image.fromarray(smooth(61, 45))
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        save(f"baseline-{name}.jpg", rgb, quality=90, subsampling=sampling)
        save(f"progressive-{name}.jpg", rgb, quality=90, subsampling=sampling, progressive=True)
    save("low-quality.jpg", rgb, quality=20)
    save("restarts.jpg", rgb, quality=85, restart_marker_blocks=3)
    save("grey.jpg", rgb.convert("L"), quality=90)
    save("grey-progressive.jpg", rgb.convert("L"), quality=90, progressive=True)
    save("rgb.jpg", rgb, quality=90, keep_rgb=True)
    save("rotated-by-exif.jpg", rgb, quality=90, exif=exif_rotation())
    save("one-pixel.jpg", Image.new("RGB", (1, 1), (200, 30, 90)))
    save("thin.jpg", Image.fromarray(smooth(1, 700)), quality=90, subsampling=0)
    cmyk = Image.fromarray(smooth(61, 45, 4), "CMYK")
    save("cmyk.jpg", cmyk, quality=90)
    save("cmyk-progressive.jpg", cmyk, quality=90, progressive=True)
    data = (SAMPLES / "cmyk.jpg").read_bytes()
    write("ycck.jpg", adobe_transform(data, 2))
    write("cmyk-without-adobe.jpg", without_adobe(data))
    write("trailing-bytes.jpg", (SAMPLES / "baseline-420.jpg").read_bytes() + b"after the end")


def exif_rotation():
    exif = Image.Exif()
    exif[274] = 6
    return exif


# --- WebP -------------------------------------------------------------------------------------------------------

def regions(side):
    """Quarters that have little in common: WebP gives them prefix codes of their own."""
    rng, half = np.random.default_rng(0), side // 2
    out = np.zeros((side, side, 3), np.uint8)
    out[:half, :half] = rng.integers(0, 256, (half, half, 1))
    out[:half, half:] = rng.integers(0, 8, (half, half, 3)) * 4
    out[half:, :half] = np.arange(half)[:, None, None] * 2 + rng.integers(0, 3, (half, half, 3))
    out[half:, half:] = rng.choice([7, 200], (half, half, 1))
    return Image.fromarray(out)


def palette_regions(side):
    """Quarters with colours of their own, of a palette of 200."""
    rng, half = np.random.default_rng(1), side // 2
    palette = rng.integers(0, 256, (200, 3)).astype(np.uint8)
    out = np.zeros((side, side), int)
    out[:half, :half] = rng.integers(0, 50, (half, half))
    out[:half, half:] = 50 + np.arange(half) // 2 + rng.integers(0, 2, (half, half))
    out[half:, :half] = 100 + rng.integers(0, 2, (half, half))
    out[half:, half:] = 150 + rng.integers(0, 50, (half, half))
    return Image.fromarray(palette[out])


def make_webp():
    rgb, rgba = Image.fromarray(smooth(61, 45)), Image.fromarray(smooth(61, 45, 4))
    holes = smooth(61, 45, 4)
    holes[10:30, 10:30, 3] = 0
    holes = Image.fromarray(holes)
    for name, image in (("rgb", rgb), ("rgba", rgba), ("holes", holes), ("grey", rgb.convert("L"))):
        save(f"{name}-lossy.webp", image, quality=80)
        save(f"{name}-lossless.webp", image, lossless=True)
    save("holes-exact.webp", holes, lossless=True, exact=True)
    save("low-quality.webp", rgb, quality=5)
    save("one-pixel.webp", Image.new("RGB", (1, 1), (9, 99, 199)))
    # Several groups of prefix codes: with a colour cache, with three transforms, and with a palette.
    save("groups-lossless.webp", regions(32), lossless=True, quality=100, method=4)
    save("groups-transforms-lossless.webp", regions(64), lossless=True, quality=100, method=6)
    save("groups-palette-lossless.webp", palette_regions(48), lossless=True, quality=100, method=6)
    frames = [Image.fromarray(smooth(40, 30)) for _ in range(3)]
    save("animated-lossy.webp", frames[0], save_all=True, append_images=frames[1:], quality=70)
    save("animated-lossless.webp", frames[0], save_all=True, append_images=frames[1:], lossless=True)
    frames = [holes.crop((0, 0, 40, 40)), rgba.crop((0, 0, 40, 40))]
    save("animated-alpha.webp", frames[0], save_all=True, append_images=frames[1:], lossless=True)
    save("animated-alpha-lossy.webp", frames[0], save_all=True, append_images=frames[1:], quality=60)
    save("animated-background.webp", frames[0], save_all=True, append_images=frames[1:], lossless=True,
         background=(200, 30, 60, 255))
    write("animated-offset.webp", webp_offset((SAMPLES / "rgba-lossless.webp").read_bytes(), 80, 70, 6, 10))
    write("animated-offset-opaque.webp", webp_offset((SAMPLES / "rgb-lossy.webp").read_bytes(), 80, 70, 6, 10))


def webp_offset(still, width, height, left, top):
    """An animation of one frame, placed inside a larger canvas whose background colour is not black."""
    def riff(kind, body):
        return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)

    def u24(value):
        return struct.pack("<I", value)[:3]

    body = still[12:]
    if body[:4] == b"VP8X":
        body = body[8 + 10:]
    frame = u24(left // 2) + u24(top // 2) + u24(60) + u24(44) + u24(100) + b"\0" + body
    canvas = bytes([0x12, 0, 0, 0]) + u24(width - 1) + u24(height - 1)
    chunks = riff(b"VP8X", canvas) + riff(b"ANIM", bytes([10, 200, 30, 255, 0, 0])) + riff(b"ANMF", frame)
    return riff(b"RIFF", b"WEBP" + chunks)


# --- GIF --------------------------------------------------------------------------------------------------------

def make_gif():
    rgb = Image.fromarray(smooth())
    palette = rgb.quantize(32)
    save("palette.gif", palette)
    save("interlaced.gif", palette, interlace=1)
    save("grey.gif", rgb.convert("L"))
    save("transparent.gif", palette, transparency=3)
    frames = [Image.fromarray(smooth()).quantize(16) for _ in range(3)]
    save("animated.gif", frames[0], save_all=True, append_images=frames[1:], duration=40)
    holes = smooth(W, H, 4)
    holes[5:20, 5:20, 3] = 0
    save("animated-transparent.gif", Image.fromarray(holes), save_all=True, append_images=[rgb.convert("RGBA")],
         disposal=2)
    indices = RNG.integers(0, 8, (6, 9)).astype(np.uint8)
    write("offset.gif", gif(indices, 20, 15, 5, 4))
    write("offset-transparent.gif", gif(indices, 20, 15, 5, 4, transparent=6))
    write("offset-beyond-screen.gif", gif(indices, 8, 5, 5, 4))
    write("index-beyond-palette.gif", gif(indices, 9, 6, 0, 0, colors=4))
    write("local-palette.gif", gif(indices, 9, 6, 0, 0, local=True))


def gif(indices, width, height, left, top, colors=8, transparent=None, local=False):
    """A GIF of one uncompressed frame (a clear code before every pixel) somewhere on a screen."""
    table = RNG.integers(0, 256, colors * 3, dtype=np.uint8).tobytes()
    flags = 0x80 | (colors.bit_length() - 2)
    out = b"GIF89a" + struct.pack("<HHBBB", width, height, 0 if local else flags, 2, 0)
    out += b"" if local else table
    if transparent is not None:
        out += b"!\xf9\x04" + struct.pack("<BHB", 1, 10, transparent) + b"\0"
    out += b"," + struct.pack("<HHHHB", left, top, indices.shape[1], indices.shape[0], flags if local else 0)
    out += table if local else b""
    bits = "".join(f"{code:04b}"[::-1] for index in indices.ravel() for code in (8, int(index))) + f"{9:04b}"[::-1]
    bits += "0" * (-len(bits) % 8)
    packed_bits = bytes(int(bits[i:i + 8][::-1], 2) for i in range(0, len(bits), 8))
    out += b"\x03" + b"".join(bytes([len(packed_bits[i:i + 255])]) + packed_bits[i:i + 255]
                              for i in range(0, len(packed_bits), 255))
    return out + b"\0;"


# --- BMP --------------------------------------------------------------------------------------------------------

def bmp(width, height, bits, rows, palette=b"", compression=0, masks=b"", core=False, header=40, colors=0):
    if core:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(rows), 2835, 2835, colors,
                           0)
        info += masks
        info += b"\0" * (header - len(info)) if header > 40 else b""
    offset = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + info + palette + rows


def padded(rows):
    return b"".join(row.tobytes() + b"\0" * (-len(row.tobytes()) % 4) for row in rows)


def make_bmp():
    rgb = Image.fromarray(smooth())
    save("rgb24.bmp", rgb)
    save("rgba32.bmp", Image.fromarray(smooth(W, H, 4)))
    save("grey8.bmp", rgb.convert("L"))
    save("bilevel.bmp", rgb.convert("1"))
    save("palette8.bmp", rgb.quantize(200))
    index = RNG.integers(0, 16, (H, W)).astype(np.uint8)
    pal4 = RNG.integers(0, 256, 64, dtype=np.uint8).tobytes()
    pal3 = RNG.integers(0, 256, 48, dtype=np.uint8).tobytes()
    write("palette4.bmp", bmp(W, H, 4, padded(packed(index, 4)), pal4))
    write("palette4-short.bmp", bmp(W, H, 4, padded(packed(index, 4)), pal4[:40], colors=10))
    write("palette1.bmp", bmp(W, H, 1, padded(packed(index & 1, 1)), pal4[:8]))
    write("core-palette4.bmp", bmp(W, H, 4, padded(packed(index, 4)), pal3, core=True))
    write("top-down.bmp", bmp(W, -H, 4, padded(packed(index, 4)), pal4))
    words = RNG.integers(0, 2**16, (H, W)).astype("<u2")
    write("rgb555.bmp", bmp(W, H, 16, padded(words)))
    m565, m555 = struct.pack("<III", 0xF800, 0x7E0, 0x1F), struct.pack("<III", 0x7C00, 0x3E0, 0x1F)
    write("rgb565.bmp", bmp(W, H, 16, padded(words), compression=3, masks=m565))
    write("rgb555-masks.bmp", bmp(W, H, 16, padded(words), compression=3, masks=m555, header=56))
    quads = RNG.integers(0, 256, (H, W, 4), dtype=np.uint8).reshape(H, -1)
    for name, masks in (("bgra", (0xFF0000, 0xFF00, 0xFF, 0xFF000000)), ("rgba", (0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
                        ("abgr", (0xFF000000, 0xFF0000, 0xFF00, 0xFF)), ("bgxr", (0xFF000000, 0xFF00, 0xFF, 0)),
                        ("zero", (0, 0, 0, 0))):
        write(f"masks-{name}.bmp", bmp(W, H, 32, quads.tobytes(), compression=3, masks=struct.pack("<IIII", *masks),
                                       header=108))
    # A run, literals, a run beyond the right edge, the end of the line; then a jump; then the rest in runs.
    rle8 = b"".join(bytes([5, 3, 0, 4, 1, 2, 3, 4, 40, i, 0, 0]) for i in range(H - 3))
    rle8 += bytes([3, 9, 0, 2, 4, 1]) + bytes([30, 6, 0, 0, 36, 7, 0, 0, 0, 1])
    pal256 = RNG.integers(0, 256, 1024, dtype=np.uint8).tobytes()
    write("rle8.bmp", bmp(W, H, 8, rle8, pal256, compression=1))
    rle4 = b"".join(bytes([7, 0x3A, 0, 5, 0x12, 0x34, 0x50, 0, 25, 0x1F, 0, 0]) for _ in range(H)) + bytes([0, 1])
    write("rle4.bmp", bmp(W, H, 4, rle4, pal4, compression=2))


# --- TIFF -------------------------------------------------------------------------------------------------------

def tiff(samples, photometric, bits, order="<", tile=None, planar=False, extra=None, palette=None, compress=None,
         sample_format=None, orientation=None, rows_per_strip=10, predictor=False, jpeg=None, tables=None):
    """A TIFF of [h, w, c] samples (or of rows already packed below 8 bits). `jpeg` makes a JPEG of a strip or tile."""
    height, width, channels = samples.shape
    kind = {1: "u1", 2: "u1", 4: "u1", 8: "u1", 16: "u2", 32: "u4"}[bits] if samples.dtype.kind != "f" else "f4"
    if samples.dtype.kind == "i":
        kind = kind.replace("u", "i")

    def encode(part):
        if jpeg:
            return jpeg(part)
        if bits < 8:
            data = packed(part[..., 0], bits).tobytes()
        else:
            part = part.astype(order + kind)
            if predictor:
                part = np.concatenate([part[:, :1], part[:, 1:] - part[:, :-1]], 1)
            data = part.tobytes()
        return zlib.compress(data) if compress == 8 else data

    planes = [samples[..., c:c + 1] for c in range(channels)] if planar else [samples]
    blocks = []
    for plane in planes:
        if tile:
            for y in range(0, height, tile):
                for x in range(0, width, tile):
                    block = np.zeros((tile, tile, plane.shape[2]), plane.dtype)
                    part = plane[y:y + tile, x:x + tile]
                    block[:part.shape[0], :part.shape[1]] = part
                    blocks.append(encode(block))
        else:
            blocks += [encode(plane[y:y + rows_per_strip]) for y in range(0, height, rows_per_strip)]
    tags = {256: (4, [width]), 257: (4, [height]), 258: (3, [bits] * channels), 259: (3, [compress or 1]),
            262: (3, [photometric]), 277: (3, [channels]), 284: (3, [2 if planar else 1])}
    if extra:
        tags[338] = (3, extra)
    if palette is not None:
        tags[320] = (3, palette)
    if sample_format:
        tags[339] = (3, [sample_format] * channels)
    if orientation:
        tags[274] = (3, [orientation])
    if predictor:
        tags[317] = (3, [2])
    if tables:
        tags[347] = (7, tables)
    out, offsets = bytearray(8), []
    for block in blocks:
        offsets.append(len(out))
        out += block + b"\0" * (len(block) % 2)
    if tile:
        tags |= {322: (4, [tile]), 323: (4, [tile]), 324: (4, offsets), 325: (4, [len(b) for b in blocks])}
    else:
        tags |= {273: (4, offsets), 278: (4, [rows_per_strip]), 279: (4, [len(b) for b in blocks])}
    entries, size = [], 2 + 12 * len(tags) + 4
    directory = len(out)
    spill = bytearray()
    for tag, (dtype, values) in sorted(tags.items()):
        body = struct.pack(f"{order}{len(values)}{ {3: 'H', 4: 'I', 7: 'B'}[dtype]}", *map(int, values))
        if len(body) > 4:
            at = directory + size + len(spill)
            spill += body + b"\0" * (len(body) % 2)
            body = struct.pack(f"{order}I", at)
        entries.append(struct.pack(f"{order}HHI", tag, dtype, len(values)) + body.ljust(4, b"\0"))
    out += struct.pack(f"{order}H", len(entries)) + b"".join(entries) + b"\0\0\0\0" + spill
    magic = b"II*\0" if order == "<" else b"MM\0*"
    out[:8] = magic + struct.pack(f"{order}I", directory)
    return bytes(out)


def make_tiff():
    rgb = Image.fromarray(smooth())
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        save(f"rgb-{compression}.tif", rgb, compression=compression)
    for compression in ("raw", "group4", "packbits"):
        save(f"bilevel-{compression}.tif", rgb.convert("1"), compression=compression)
    save("grey.tif", rgb.convert("L"), compression="tiff_lzw")
    save("palette.tif", rgb.quantize(100), compression="tiff_lzw")
    save("rgba.tif", Image.fromarray(smooth(W, H, 4)), compression="tiff_lzw")
    save("grey-alpha.tif", Image.fromarray(smooth(W, H, 4)).convert("LA"))
    save("cmyk.tif", Image.fromarray(smooth(W, H, 4), "CMYK"), compression="tiff_lzw")
    save("grey16.tif", Image.fromarray(RNG.integers(0, 700, (H, W)).astype(np.uint16)))
    save("int32.tif", Image.fromarray(RNG.integers(-300, 700, (H, W)).astype(np.int32)))
    save("float32.tif", Image.fromarray(RNG.uniform(-100, 400, (H, W)).astype(np.float32)))
    save("jpeg.tif", Image.fromarray(smooth(64, 48)), compression="jpeg", quality=90)
    save("jpeg-grey.tif", Image.fromarray(smooth(64, 48)).convert("L"), compression="jpeg", quality=90)
    save("big.tif", rgb, big_tiff=True)
    frames = [Image.fromarray(smooth()) for _ in range(2)]
    save("pages.tif", frames[0], save_all=True, append_images=frames[1:])

    c3, c4, c1 = smooth(), smooth(W, H, 4), smooth(W, H, 1)
    wide = RNG.integers(0, 2**16, (H, W, 4)).astype(np.uint16)
    for order, tag in (("<", "little"), (">", "big")):
        write(f"rgb16-{tag}.tif", tiff(wide[..., :3], 2, 16, order))
        write(f"rgba16-{tag}.tif", tiff(wide, 2, 16, order, extra=[2]))
        write(f"grey16-{tag}.tif", tiff(wide[..., :1] // 128, 1, 16, order))
        write(f"cmyk16-{tag}.tif", tiff(wide, 5, 16, order))
        write(f"rgb16-deflate-{tag}.tif", tiff(wide[..., :3], 2, 16, order, compress=8))
        write(f"int32-{tag}.tif", tiff(RNG.integers(-300, 700, (H, W, 1)).astype(np.int32), 1, 32, order,
                                       sample_format=2))
        write(f"int16-{tag}.tif", tiff(RNG.integers(-300, 700, (H, W, 1)).astype(np.int16), 1, 16, order,
                                       sample_format=2))
    write("grey16-white-is-zero.tif", tiff(wide[..., :1] // 128, 0, 16))
    write("white-is-zero.tif", tiff(c1, 0, 8))
    for bits in (1, 2, 4):
        values = RNG.integers(0, 2**bits, (H, W, 1))
        write(f"grey{bits}.tif", tiff(values, 1, bits))
        write(f"grey{bits}-white-is-zero.tif", tiff(values, 0, bits))
        ramp = RNG.integers(0, 2**16, 3 * 2**bits)
        write(f"palette{bits}.tif", tiff(values, 3, bits, palette=ramp))
    write("palette8-deflate.tif", tiff(c1, 3, 8, palette=RNG.integers(0, 2**16, 768), compress=8))
    write("tiled.tif", tiff(c3, 2, 8, tile=16))
    write("tiled-grey.tif", tiff(c1, 1, 8, tile=16))
    write("tiled-deflate.tif", tiff(c3, 2, 8, tile=32, compress=8))
    write("planar.tif", tiff(c3, 2, 8, planar=True))
    write("planar-deflate.tif", tiff(c3, 2, 8, planar=True, compress=8))
    write("planar-tiled.tif", tiff(c3, 2, 8, planar=True, tile=16, compress=8))
    write("planar-cmyk.tif", tiff(c4, 5, 8, planar=True))
    write("predictor.tif", tiff(c3, 2, 8, compress=8, predictor=True))
    write("predictor16.tif", tiff(wide[..., :3], 2, 16, compress=8, predictor=True))
    write("rgbx.tif", tiff(c4, 2, 8, extra=[0]))
    write("rgba-premultiplied.tif", tiff(c4, 2, 8, extra=[1]))
    write("rgba-unnamed.tif", tiff(c4, 2, 8))
    for orientation in range(1, 9):
        write(f"orientation{orientation}.tif", tiff(c3[:5, :7], 2, 8, orientation=orientation))


def make_jpeg_in_tiff():
    """JPEGs in strips and tiles. The last ones are of odd sizes, and chroma is interpolated up to their edges alone."""
    rng = np.random.default_rng(20261123)
    height, width = 61, 83
    y, x = np.mgrid[0:height, 0:width]
    samples = np.stack([128 + 90 * np.sin((x * (c + 1) + y * (3 - c)) / 11.0) for c in range(4)], -1)
    samples = np.clip(samples + rng.integers(-20, 21, samples.shape), 0, 255).astype(np.uint8)

    def jpeg(**options):
        def encode(part):
            mode = {1: "L", 3: "RGB", 4: "CMYK"}[part.shape[2]]
            buffer = io.BytesIO()
            Image.fromarray(part[..., 0] if mode == "L" else part, mode).save(buffer, "jpeg", quality=85, **options)
            return buffer.getvalue()
        return encode

    def abbreviated(**options):
        """The tables, and what makes JPEGs without them."""
        def without(part):
            data = jpeg(**options)(part)
            for at, end in reversed(list(segments(data, 0xC4, 0xDB, 0xE0))):
                data = data[:at] + data[end:]
            return data
        whole = jpeg(**options)(samples[:8, :8, :3])
        listed = b"".join(whole[at:end] for at, end in segments(whole, 0xC4, 0xDB))
        return {"tables": b"\xff\xd8" + listed + b"\xff\xd9", "jpeg": without}

    rgb, grey = samples[..., :3], samples[..., :1]
    as_jpeg = {"bits": 8, "compress": 7}
    for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
        write(f"jpeg-strips-{name}.tif", tiff(rgb, 6, rows_per_strip=16, jpeg=jpeg(subsampling=subsampling), **as_jpeg))
        write(f"jpeg-tiles-{name}.tif", tiff(rgb, 6, tile=32, jpeg=jpeg(subsampling=subsampling), **as_jpeg))
    write("jpeg-tables-420.tif", tiff(rgb, 6, order=">", rows_per_strip=24, **abbreviated(subsampling=2), **as_jpeg))
    write("jpeg-tables-tiles.tif", tiff(rgb, 6, tile=16, **abbreviated(subsampling=2), **as_jpeg))
    write("jpeg-progressive.tif", tiff(rgb, 6, rows_per_strip=32, jpeg=jpeg(progressive=True), **as_jpeg))
    write("jpeg-orientation6.tif", tiff(rgb, 6, rows_per_strip=16, orientation=6, jpeg=jpeg(), **as_jpeg))
    # Not converted, whatever the JPEG's own markers say.
    write("jpeg-rgb-strips.tif", tiff(rgb, 2, rows_per_strip=16, jpeg=jpeg(subsampling=0), **as_jpeg))
    write("jpeg-grey-tiles.tif", tiff(grey, 1, tile=32, jpeg=jpeg(), **as_jpeg))
    write("jpeg-white-is-zero.tif", tiff(grey, 0, rows_per_strip=16, jpeg=jpeg(), **as_jpeg))
    write("jpeg-planar.tif", tiff(rgb, 2, rows_per_strip=16, planar=True, jpeg=jpeg(), **as_jpeg))
    write("jpeg-planar-tiles.tif", tiff(rgb, 2, tile=32, planar=True, jpeg=jpeg(), **as_jpeg))
    write("jpeg-cmyk.tif", tiff(samples, 5, rows_per_strip=16, jpeg=jpeg(), **as_jpeg))
    write("jpeg-rgbx.tif", tiff(samples, 2, rows_per_strip=16, extra=[0], jpeg=jpeg(), **as_jpeg))

    def full(part):
        """The last strip as high as the others."""
        return jpeg(subsampling=2)(np.pad(part, ((0, 16 - part.shape[0]), (0, 0), (0, 0)), "edge"))
    write("jpeg-full-strips.tif", tiff(rgb, 6, rows_per_strip=16, jpeg=full, **as_jpeg))


def main():
    SAMPLES.mkdir(exist_ok=True)
    for old in SAMPLES.iterdir():
        old.unlink()
    make_png(), make_jpeg(), make_webp(), make_gif(), make_bmp(), make_tiff(), make_jpeg_forms(), make_jpeg_in_tiff()
    cases = []
    for path in sorted(SAMPLES.iterdir()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with Image.open(path) as opened:
                    mode = opened.mode
                    image = opened.convert("RGB")
            except Exception as error:
                print(f"{path.name}: not read by Pillow, left out: {error}")
                path.unlink()
                continue
        case = {"file": path.name, "mode": mode, "width": image.width, "height": image.height,
                "crc32": zlib.crc32(image.tobytes())}
        cases.append(case)
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "decode.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
