"""How many elements or rows a pass works on at once: every size with its reason."""

CACHED = 1 << 19
"""2 MB of float32: two ready buffers stay in the cache; smaller ones pay more for their calls than they save."""
CACHED_FLOAT64 = 1 << 18
"""2 MB of float64, of which a step may make a dozen; also where a pass holds several buffers of float32."""
CACHED_SEARCH = 1 << 17
"""For searches that go over the same rows again and again with their weights, slopes and products beside them."""
MEMORY = 1 << 22
"""16 MB of float32: what bounds the working memory of a pass that looks at its rows once."""
DEVICE_MEMORY = 1 << 27
"""The same on a GPU, where small blocks would leave the device idle."""
DISTANCE_BYTES = 1 << 25
"""Bytes of a block of distances from some rows to all points: few enough to choose the smallest while they are near."""
CLASS_DISTANCE_BYTES = 1 << 24
"""The same to the points of one class, of which a pass looks at one after the other."""
IMAGES_ON_DEVICE = 1 << 23
"""Values of a block of images that fills a GPU; a corruption makes several copies of it."""

SHARD_ROWS = 65_536
"""Rows of a shard that are read at once: at 1,000 classes 260 MB of float32."""
FEATURE_ROWS = 8192
"""Rows of features that go through a small network, or are looked over, at once."""
WIDENED_ROWS = 4096
"""Rows that a pass copies once more: as float64, as bytes, or to another place."""
PRODUCT_ROWS = 2048
"""Rows of one product on a CPU (16 times that on a GPU): few enough for float32 sums, enough for full speed."""
COMPARED_ROWS = 1024
"""Rows that are compared with each other, and with all that are kept, at once."""
SEGMENTS = 1 << 16
"""Segments of a ranking whose sums are made at once: of all together they would take more than the samples do."""
HEAD_ROWS = 1 << 16
"""Samples whose penultimate features are held at once while passes with dropout run over them."""
RANGE_ROWS = 1 << 22
"""Rows of a sorted run, and about those of a range of it: some 100 MB of memory each."""
RUN_ROWS = 1 << 16
"""Rows of a sorted run that are read at once."""


def rows_in(elements: int, width: int) -> int:
    """Rows of `width` elements that fit into so many, at least one."""
    return max(1, elements // max(width, 1))
