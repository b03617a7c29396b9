import io
import multiprocessing

import numpy as np
import pytest
from PIL import Image

from confide.data.images import PixelFormat, as_picture, decode, in_threads, inspect_image, picture_bytes, reason_of


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    buffer.seek(0)
    return buffer


def test_pixels_are_those_of_the_image():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    found = decode(encoded(Image.fromarray(pixels)), PixelFormat(3, 5, 7))
    assert (found == pixels.transpose(2, 0, 1)).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_eight_bits(mode, channels):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    if mode == "I;16":
        image = Image.fromarray(np.full((4, 4), 0xC0FF, dtype=np.uint16))
    else:
        image = Image.new("RGB", (4, 4), (192, 192, 192)).convert(mode)
    pixels = decode(encoded(image, kind), PixelFormat(channels, 4, 4))
    assert pixels.shape == (channels, 4, 4)
    # Two colours, or a palette, do not have this grey: they dither about it.
    dithers = mode in ("1", "P")
    assert abs(pixels.mean() - 192) <= (40 if dithers else 2)


def test_a_palette_with_transparency_gives_no_warning():
    image = Image.new("P", (4, 4))
    image.putpalette([10, 20, 30] * 256)
    pixels = decode(encoded(image, transparency=bytes([0] * 256)), PixelFormat(3, 4, 4))
    assert pixels[:, 0, 0].tolist() == [10, 20, 30]


def test_a_photo_decoded_small_looks_like_one_decoded_whole():
    # A smooth picture: what differs between the two ways is the decoder's rounding, not detail.
    x, y = np.meshgrid(np.linspace(0, 3, 640), np.linspace(0, 3, 480))
    picture = Image.fromarray((127 + 60 * np.stack([np.sin(x), np.cos(y), np.sin(x + y)], 2)).astype(np.uint8))
    small = decode(encoded(picture, "JPEG", quality=95), PixelFormat(3, 32, 32)).astype(int)
    whole = decode(encoded(picture), PixelFormat(3, 32, 32)).astype(int)
    assert np.abs(small - whole).max() <= 4


def test_a_truncated_image_passes_the_header_but_not_the_deep_look():
    content = encoded(Image.effect_noise((200, 200), 50), "JPEG").getvalue()
    assert inspect_image(io.BytesIO(content), deep=True) == (200, 200, True)
    assert inspect_image(io.BytesIO(content[:-500]), deep=False) == (200, 200, True)
    with pytest.raises(OSError, match="truncated"):
        inspect_image(io.BytesIO(content[:-500]), deep=True)


def test_floating_point_pixels_are_refused():
    with pytest.raises(ValueError, match="floating-point pixels"):
        inspect_image(encoded(Image.new("F", (3, 3)), "TIFF"), deep=False)


def test_threads_keep_the_order_and_do_not_run_ahead():
    begun = []
    results = in_threads(lambda i: begun.append(i) or i * i, list(range(5000)))
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    assert len(begun) < 5000
    assert list(results) == [i * i for i in range(3, 5000)]


def test_reasons_are_one_line():
    assert reason_of(OSError("cannot identify image file <_io.BytesIO object at 0x7f>")) == (
        "not an image that can be identified"
    )
    assert reason_of(ValueError("two\n  lines")) == "two lines"
    assert reason_of(ZeroDivisionError()) == "ZeroDivisionError"


def _decode_in_child(queue):
    queue.put(sum(in_threads(lambda i: i, list(range(100)))))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_process_gets_threads_of_its_own():
    assert sum(in_threads(lambda i: i, list(range(100)))) == 4950
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_decode_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=20) == 4950
    child.join(20)


def test_a_picture_has_the_pixels_it_was_made_of():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 4), dtype=np.uint8)
    picture = as_picture(pixels)
    assert picture is not None
    assert (decode(io.BytesIO(picture_bytes(picture)), PixelFormat(3, 5, 4)) == pixels).all()
    assert as_picture(pixels[:2]) is None
    assert as_picture(pixels.astype(float)) is None
