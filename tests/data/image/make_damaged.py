"""Writes images whose metadata is in unusual places or whose bytes are damaged or missing, and damaged.json: for each, with and
without EXIF orientation, the size and the CRC-32 of what Pillow makes of it.

    python make_damaged.py        (Pillow 13.0.0, numpy)
"""

import io
import json
import pathlib
import struct
import warnings
import zlib

import numpy as np
from make import chunk, segments, smooth, tiff
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
DAMAGED = HERE / "damaged"
REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def write(name, data):
    (DAMAGED / name).write_bytes(data)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(width=21, height=13, mode="RGB"):
    return Image.fromarray(smooth(width, height)).convert(mode)


# --- Orientation ------------------------------------------------------------------------------------------------

def ifd(*entries, order=">", thumbnail=None):
    """EXIF data of (tag, type, count, value) entries; `thumbnail` is the orientation in a second directory."""
    def directory(entries, at, following):
        body, spill = b"", b""
        behind = at + 2 + 12 * len(entries) + 4
        for tag, kind, count, value in entries:
            if len(value) > 4:
                spill, value = spill + value, struct.pack(f"{order}I", behind + len(spill))
            body += struct.pack(f"{order}HHI", tag, kind, count) + value.ljust(4, b"\0")
        end = behind + len(spill)
        return struct.pack(f"{order}H", len(entries)) + body + struct.pack(f"{order}I", end if following else 0) + spill

    head = (b"MM\0*" if order == ">" else b"II*\0") + struct.pack(f"{order}I", 8)
    data = directory(entries, 8, thumbnail)
    if thumbnail:
        data += directory([(274, 3, 1, struct.pack(f"{order}H", thumbnail))], 8 + len(data), False)
    return head + data


def short(value, order=">"):
    return (274, 3, 1, struct.pack(f"{order}H", value))


def xmp(value, form="attribute"):
    forms = {"attribute": f'<rdf:Description tiff:Orientation="{value}"/>',
             "element": f"<tiff:Orientation>{value}</tiff:Orientation>",
             "single-quotes": f"<rdf:Description tiff:Orientation='{value}'/>"}
    return f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF>{forms[form]}</rdf:RDF></x:xmpmeta>'.encode()


def raw_profile(exif):
    digits = exif.hex()
    lines = "\n".join(digits[at:at + 72] for at in range(0, len(digits), 72))
    return f"\nexif\n{len(exif):8}\n{lines}\n".encode()


EXIF, XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"


def make_jpeg_orientation():
    base = encoded(picture(), "jpeg", quality=90)

    def add(name, *contents):
        parts = b"".join(b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content for content in contents)
        write(f"orientation-{name}.jpg", base[:2] + parts + base[2:])

    for value in range(10):
        add(f"xmp{value}", XMP + xmp(value))
    add("xmp-element", XMP + xmp(6, "element"))
    add("xmp-single-quotes", XMP + xmp(6, "single-quotes"))
    add("xmp-twice", XMP + xmp(6), XMP + xmp(3))
    add("xmp-extended", b"http://ns.adobe.com/xmp/extension/\0" + xmp(6))
    add("exif-little", EXIF + ifd(short(8, "<"), order="<"))
    add("exif-before-xmp", EXIF + ifd(short(8)), XMP + xmp(6))
    add("exif-upright-before-xmp", XMP + xmp(6), EXIF + ifd(short(1)))
    add("exif-zero-before-xmp", EXIF + ifd(short(0)), XMP + xmp(6))
    add("exif-nine-before-xmp", EXIF + ifd(short(9)), XMP + xmp(6))
    add("exif-text-before-xmp", EXIF + ifd((274, 2, 2, b"6\0")), XMP + xmp(6))
    add("exif-byte-before-xmp", EXIF + ifd((274, 1, 1, b"\6")), XMP + xmp(8))
    add("exif-none-before-xmp", EXIF + ifd((271, 2, 4, b"abc\0")), XMP + xmp(6))
    add("exif-empty-before-xmp", EXIF, XMP + xmp(6))
    add("exif-long", EXIF + ifd((274, 4, 1, struct.pack(">I", 5))))
    add("exif-rational", EXIF + ifd((274, 5, 1, struct.pack(">II", 12, 2))))
    add("exif-signed", EXIF + ifd((274, 8, 1, struct.pack(">h", 7))))
    add("exif-double", EXIF + ifd((274, 12, 1, struct.pack(">d", 3.0))))
    add("exif-three-values", EXIF + ifd((274, 3, 3, struct.pack(">HHH", 6, 3, 8))))
    add("exif-twice-in-directory", EXIF + ifd(short(4), short(6)))
    add("exif-of-thumbnail", EXIF + ifd(short(3), thumbnail=6))
    add("exif-of-thumbnail-alone", EXIF + ifd((271, 2, 4, b"abc\0"), thumbnail=6))
    add("exif-behind-cut-value", EXIF + ifd((271, 2, 40, b"\0\0\x40\0"), short(6)))
    add("exif-two-segments", EXIF + ifd(short(6))[:20], EXIF + ifd(short(6))[20:])
    add("exif-prefix-twice", EXIF + EXIF + ifd(short(6)))
    two = picture(), picture()
    write("orientation-mpo.jpg", encoded(two[0], "mpo", save_all=True, append_images=two[1:], exif=ifd(short(6))))


def make_png_orientation():
    base = encoded(picture(), "png")
    exif, profile = ifd(short(6)), raw_profile(EXIF + ifd(short(6)))
    zipped = zlib.compress(xmp(6))

    def add(name, *chunks, behind=False):
        at = len(base) - 12 if behind else 33
        write(f"orientation-{name}.png", base[:at] + b"".join(chunks) + base[at:])

    itxt = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(6))
    add("itxt", itxt)
    add("itxt-behind", itxt, behind=True)
    add("itxt-compressed", chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0en\0key\0" + zipped))
    add("itxt-compressed-cut", chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zipped[:-5]))
    add("itxt-not-utf8", chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0\xff" + xmp(6)))
    add("itxt-element", chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(8, "element")))
    add("text-xmp", chunk(b"tEXt", b"XML:com.adobe.xmp\0" + xmp(6)))
    add("ztxt-xmp", chunk(b"zTXt", b"XML:com.adobe.xmp\0\0" + zipped))
    add("raw-text", chunk(b"tEXt", b"Raw profile type exif\0" + profile))
    add("raw-ztxt", chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(profile)))
    add("raw-ztxt-behind", chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(profile)), behind=True)
    add("raw-app1", chunk(b"zTXt", b"Raw profile type APP1\0\0" + zlib.compress(profile)))
    add("raw-before-xmp", itxt, chunk(b"tEXt", b"Raw profile type exif\0" + raw_profile(ifd(short(3)))))
    add("chunk", chunk(b"eXIf", exif))
    add("chunk-behind", chunk(b"eXIf", exif), behind=True)
    add("chunk-before-raw", chunk(b"tEXt", b"Raw profile type exif\0" + raw_profile(ifd(short(3)))), chunk(b"eXIf", exif))


def riff(kind, content):
    return kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def extended(flags, size, *chunks):
    header = bytes([flags, 0, 0, 0]) + b"".join(struct.pack("<I", side - 1)[:3] for side in size)
    return riff(b"RIFF", b"WEBP" + riff(b"VP8X", header) + b"".join(chunks))


def make_webp():
    exif, of_xmp = riff(b"EXIF", ifd(short(6))), riff(b"XMP ", xmp(8))
    for kind, image in (("lossless", encoded(picture(), "webp", lossless=True)), ("lossy", encoded(picture(), "webp"))):
        frame, size = image[12:], (21, 13)
        for name, flags in (("icc", 32), ("alpha", 16), ("exif", 8), ("xmp", 4), ("animation", 2), ("all", 62)):
            write(f"flag-{name}-{kind}.webp", extended(flags, size, frame))
        write(f"orientation-exif-{kind}.webp", extended(8, size, frame, exif))
        write(f"orientation-exif-before-{kind}.webp", extended(8, size, exif, frame))
        write(f"orientation-xmp-{kind}.webp", extended(4, size, frame, of_xmp))
        write(f"orientation-both-{kind}.webp", extended(12, size, frame, of_xmp, exif))
        write(f"orientation-without-flags-{kind}.webp", extended(0, size, frame, exif, of_xmp))
        write(f"unknown-chunks-{kind}.webp", extended(0, size, riff(b"abcd", b"123"), frame, riff(b"efgh", b"")))
        write(f"trailing-{kind}.webp", extended(0, size, frame) + b"behind the end")


def make_tiff_orientation():
    pixels = smooth(7, 5)
    for compress, tag in ((None, "raw"), (8, "deflate")):
        plain = tiff(pixels, 2, 8, compress=compress)
        write(f"orientation-xmp-{tag}.tif", with_tags(plain, {700: (1, xmp(6))}))
        write(f"orientation-xmp-undefined-{tag}.tif", with_tags(plain, {700: (7, xmp(3, "element"))}))
        both = {274: (3, struct.pack("<H", 8)), 700: (1, xmp(6))}
        write(f"orientation-tag-before-xmp-{tag}.tif", with_tags(plain, both))
        write(f"orientation-long-{tag}.tif", with_tags(plain, {274: (4, struct.pack("<I", 6))}))


# --- TIFF -------------------------------------------------------------------------------------------------------

def entries(data):
    order = "<" if data[:2] == b"II" else ">"
    at = struct.unpack(f"{order}I", data[4:8])[0]
    tags = {}
    for index in range(struct.unpack(f"{order}H", data[at:at + 2])[0]):
        entry = data[at + 2 + 12 * index:at + 14 + 12 * index]
        tag, kind, count = struct.unpack(f"{order}HHI", entry[:8])
        size = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1}[kind] * count
        place = struct.unpack(f"{order}I", entry[8:])[0]
        tags[tag] = (kind, data[place:place + size] if size > 4 else entry[8:8 + size])
    return order, tags


def with_tags(data, tags, without=()):
    """The file with another directory behind it."""
    order, all_tags = entries(data)
    all_tags = {tag: value for tag, value in (all_tags | tags).items() if tag not in without}
    out = bytearray(data + b"\0" * (len(data) % 2))
    directory, spill = len(out), b""
    behind = directory + 2 + 12 * len(all_tags) + 4
    body = b""
    for tag, (kind, value) in sorted(all_tags.items()):
        count = len(value) // {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1}[kind]
        if len(value) > 4:
            spill, value = spill + value + b"\0" * (len(value) % 2), struct.pack(f"{order}I", behind + len(spill))
        body += struct.pack(f"{order}HHI", tag, kind, count) + value.ljust(4, b"\0")
    out += struct.pack(f"{order}H", len(all_tags)) + body + b"\0\0\0\0" + spill
    out[4:8] = struct.pack(f"{order}I", directory)
    return bytes(out)


def lowest_bit_first(data):
    order, tags = entries(data)
    numbers = [struct.unpack(f"{order}{len(value) // 4}I", value) if kind == 4 else
               struct.unpack(f"{order}{len(value) // 2}H", value)
               for kind, value in (tags.get(273, tags.get(324)), tags.get(279, tags.get(325)))]
    out = bytearray(data)
    for offset, length in zip(*numbers):
        out[offset:offset + length] = out[offset:offset + length].translate(REVERSED)
    return with_tags(bytes(out), {266: (3, struct.pack(f"{order}H", 2))})


def make_tiff():
    rng = np.random.default_rng(20261126)
    rgb, grey = smooth(), smooth(channels=1)
    for bits in (1, 2, 4):
        values = rng.integers(0, 2**bits, (29, 37, 1)).astype(np.uint8)
        for photometric in (0, 1):
            write(f"fill-order-{bits}-{photometric}.tif", lowest_bit_first(tiff(values, photometric, bits)))
        write(f"fill-order-{bits}-tiles.tif", lowest_bit_first(tiff(values, 1, bits, tile=16)))
        ramp = rng.integers(0, 2**16, 3 * 2**bits)
        write(f"fill-order-{bits}-palette-deflate.tif", lowest_bit_first(tiff(values, 3, bits, palette=ramp, compress=8)))
    for order, tag in (("<", "little"), (">", "big")):
        write(f"fill-order-8-{tag}.tif", lowest_bit_first(tiff(grey, 1, 8, order)))
        write(f"fill-order-rgb-{tag}.tif", lowest_bit_first(tiff(rgb, 2, 8, order)))
    write("fill-order-16.tif", lowest_bit_first(tiff(rng.integers(0, 600, (29, 37, 1)).astype(np.uint16), 1, 16)))
    write("fill-order-planar.tif", lowest_bit_first(tiff(rgb, 2, 8, planar=True)))
    write("fill-order-planar-deflate.tif", lowest_bit_first(tiff(rgb, 2, 8, planar=True, compress=8)))
    write("fill-order-8-inverted-deflate.tif", lowest_bit_first(tiff(grey, 0, 8, compress=8)))
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits"):
        for mode in ("RGB", "L", "P", "1"):
            image = Image.fromarray(rgb).convert("RGB")
            image = image.quantize(60) if mode == "P" else image.convert(mode)
            write(f"fill-order-{compression}-{mode}.tif", lowest_bit_first(encoded(image, "tiff", compression=compression)))
    for photometric in (0, 1):
        group4 = encoded(picture(37, 29, "1"), "tiff", compression="group4", tiffinfo={262: photometric})
        write(f"fill-order-group4-{photometric}.tif", lowest_bit_first(group4))
    # A JPEG's bytes stay as they are.
    jpeg = encoded(picture(37, 29), "tiff", compression="jpeg")
    write("fill-order-jpeg.tif", with_tags(jpeg, {266: (3, struct.pack("<H", 2))}))

    for name, data in (("rgb", tiff(rgb, 2, 8)), ("grey2", tiff(rng.integers(0, 4, (29, 37, 1)), 1, 2)),
                       ("tiles", tiff(rgb, 2, 8, tile=16))):
        lengths = 279 if 279 in entries(data)[1] else 325
        kind, value = entries(data)[1][lengths]
        write(f"lengths-missing-{name}.tif", with_tags(data, {}, without=[lengths]))
        write(f"lengths-too-large-{name}.tif", with_tags(data, {lengths: (4, b"\xff\xff\xff\0" * (len(value) // 4))}))
        write(f"lengths-zero-{name}.tif", with_tags(data, {lengths: (4, bytes(len(value)))}))
    whole = with_tags(tiff(rgb, 2, 8, rows_per_strip=29), {305: (2, b"what is behind the pixels\0")})
    for cut in (1, 20, 30, 34, 36):
        write(f"directory-cut-{cut}.tif", whole[:-cut])
    # The directory first, the pixels last, of which padding is missing.
    body = tiff(rgb, 2, 8, tile=16)
    order, tags = entries(body)
    last = struct.unpack(f"<{len(tags[324][1]) // 4}I", tags[324][1])[-1]
    moved = with_tags(body, {}) + body[last:last + 16 * 16 * 3 - 3 * 16 * 3]
    place = len(with_tags(body, {}))
    write("last-tile-cut.tif", with_last_offset(moved, place))


def with_last_offset(data, offset):
    _, tags = entries(data)
    listed = tags[324][1]
    return data.replace(listed, listed[:-4] + struct.pack("<I", offset))


# --- Missing ends -----------------------------------------------------------------------------------------------

def make_png():
    for interlaced in (False, True):
        tag = "-interlaced" if interlaced else ""
        data = (HERE / "samples" / f"rgb8{tag}.png").read_bytes()
        end = len(data) - 12
        for cut in (1, 4, 8, 11, 12, 13, 16, 18, 20):
            write(f"cut-{cut}{tag}.png", data[:-cut])
        write(f"wrong-checksum{tag}.png", data[:end - 4] + b"\0\0\0\0" + data[end:])
        write(f"wrong-adler{tag}.png", data[:end - 8] + bytes(8) + data[end:])
        write(f"unknown-critical{tag}.png", data[:33] + chunk(b"ABCD", b"xyz") + data[33:end] + chunk(b"EFGH", b"") + data[end:])
        write(f"junk-behind{tag}.png", data[:end] + b"\0\0\0\1a\xffcdjunk")
        write(f"text-cut-behind{tag}.png", data[:end] + b"\0\0\0\x20te")
        size = struct.unpack(">I", data[33:37])[0]
        parts = [data[41:41 + size][at:at + 300] for at in range(0, size, 300)]
        idats = b"".join(chunk(b"IDAT", part) for part in parts) + chunk(b"IDAT", b"")
        write(f"parts-without-end{tag}.png", data[:33] + idats)


def make_other_ends():
    rgb = picture(37, 29)
    for bits, image in ((1, rgb.convert("1")), (8, rgb.convert("L")), (24, rgb)):
        data = encoded(image, "bmp")
        padding = -((37 * bits + 7) // 8) % 4
        write(f"padding-cut-{bits}.bmp", data[:-padding])
    for name, options in (("plain", {}), ("interlaced", {"interlace": 1})):
        data = encoded(rgb.quantize(32), "gif", **options)
        write(f"without-trailer-{name}.gif", data[:-1])
        write(f"without-terminator-{name}.gif", data[:-2])


# --- JPEG -------------------------------------------------------------------------------------------------------

def restarts(data):
    """Where the restart markers are, and the ends of the intervals behind them."""
    at = next(segments(data, 0xDA))[1]
    markers = [at for at in range(at, len(data) - 1) if data[at] == 0xFF and 0xD0 <= data[at + 1] <= 0xD7]
    return list(zip(markers, markers[1:] + [data.rindex(b"\xff\xd9")]))


def make_jpeg():
    bases = {
        "420": encoded(picture(70, 50), "jpeg", restart_marker_blocks=3),
        "444": encoded(picture(61, 45), "jpeg", subsampling=0, restart_marker_rows=1),
        "grey": encoded(picture(61, 45, "L"), "jpeg", restart_marker_blocks=5),
        "cmyk": encoded(picture(61, 45, "CMYK"), "jpeg", restart_marker_blocks=4),
        "progressive": encoded(picture(70, 50), "jpeg", progressive=True, restart_marker_blocks=3),
        "progressive-grey": encoded(picture(61, 45, "L"), "jpeg", progressive=True, restart_marker_rows=2),
    }
    for name, data in bases.items():
        found = restarts(data)
        at, end = found[1]
        write(f"restart-missing-{name}.jpg", data[:at] + data[at + 2:])
        last = found[-1][0]
        write(f"restart-missing-last-{name}.jpg", data[:last] + data[last + 2:])
        write(f"interval-missing-{name}.jpg", data[:at] + data[end:])
        for number in range(8):
            write(f"restart-{number}-{name}.jpg", data[:at + 1] + bytes([0xD0 + number]) + data[at + 2:])
        write(f"restart-twice-{name}.jpg", data[:at] + data[at:at + 2] + data[at:])
        middle = (at + end) // 2 + 1
        write(f"interval-cut-{name}.jpg", data[:middle] + data[end:])
        write(f"restart-within-{name}.jpg", data[:middle] + b"\xff\xd5" + data[middle:])
        write(f"restart-filled-{name}.jpg", data[:at] + b"\xff\xff\xff" + data[at:])
        flipped = bytearray(data)
        for place in range(at + 3, end, 7):
            flipped[place] ^= 0x10
        write(f"interval-flipped-{name}.jpg", bytes(flipped))
    without = bytearray(bases["420"])
    for at, _ in reversed(restarts(bases["420"])):
        del without[at:at + 2]
    write("restarts-missing.jpg", bytes(without))
    plain = encoded(picture(61, 45), "jpeg")[:-2]
    for name, end in (("zeros", bytes(20)), ("segment-cut", b"\xff\xe1\0\x40abc"), ("comment", b"\xff\xfe\0\5abc")):
        write(f"without-end-{name}.jpg", plain + end)


def make_irregular():
    gif = encoded(picture(37, 29).quantize(32), "gif")
    frame = 13 + 3 * 2 ** ((gif[10] & 7) + 1)
    write("junk-between-blocks.gif", gif[:frame] + b"\0\0x" + gif[frame:])
    write("unknown-extension.gif", gif[:frame] + b"!\x42\2ab\0" + gif[frame:])
    write("long-control.gif", gif[:frame] + b"!\xf9\6\1\0\0\3\0\0\0" + gif[frame:])
    write("without-palette.gif", gif[:10] + bytes([gif[10] & 0x7F]) + gif[11:13] + gif[frame:])
    grey = smooth(channels=1)
    for name, data in (("8", tiff(grey, 1, 8)), ("2", tiff(grey // 100, 1, 2, ">")), ("deflate", tiff(grey, 1, 8, compress=8))):
        write(f"without-photometric-{name}.tif", with_tags(data, {}, without=[262]))
    # EOI is cut off from each strip or tile.
    for name in ("strips-420", "tiles-444", "progressive", "tables-420"):
        data = (HERE / "samples" / f"jpeg-{name}.tif").read_bytes()
        order, tags = entries(data)
        tag = 279 if 279 in tags else 325
        lengths = struct.unpack(f"{order}{len(tags[tag][1]) // 4}I", tags[tag][1])
        lengths = struct.pack(f"{order}{len(lengths)}I", *(length - 2 for length in lengths))
        write(f"jpeg-without-end-{name}.tif", with_tags(data, {tag: (4, lengths)}))


def main():
    DAMAGED.mkdir(exist_ok=True)
    for old in DAMAGED.iterdir():
        old.unlink()
    make_jpeg_orientation(), make_png_orientation(), make_webp(), make_tiff_orientation(), make_tiff(), make_png()
    make_other_ends(), make_jpeg(), make_irregular()
    cases = []
    for path in sorted(DAMAGED.iterdir()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results = []
                for exif in (False, True):
                    with Image.open(path) as opened:
                        image = (ImageOps.exif_transpose(opened) if exif else opened).convert("RGB")
                    results.append([image.width, image.height, zlib.crc32(image.tobytes())])
            except Exception as error:
                print(f"{path.name}: not read by Pillow, left out: {error}")
                path.unlink()
                continue
        cases.append({"file": path.name, "as_stored": results[0], "oriented": results[1]})
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "damaged.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
