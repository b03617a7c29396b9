"""Figure 1b of Cui et al. (2023): difficulty grows with corruption and with label noise."""

from benchmarks.lib.claims import Trend
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import severities

ITEM = Item(
    name="p1-figure1b",
    title="RMD against severity of corruption and share of wrong labels",
    source="Cui et al. (2023), Figure 1b",
    setting="CLIP-ViT-B features of ImageNet images; no numbers are printed.",
    here="EfficientNet-Lite0 features of 300 test images of CIFAR-10; 16 corruptions at severities 1 to 5 (0 is "
    "clean), and labels of which a share of 0.1 to 0.5 is wrong. Written by `python -m benchmarks prepare`.",
    axes={"": "severity of the corruption, 0 is clean", "label_noise": "share of wrong labels"},
    values=severities,
    datasets=("cifar10",),
    baseline="",
    claims=(
        Trend("the score rises with the severity of corruption", ("mean of corruptions",), "mean RMD"),
        Trend("the score rises with the share of wrong labels", ("label_noise",), "mean RMD"),
    ),
)
