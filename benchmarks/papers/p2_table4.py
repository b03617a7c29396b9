"""Table 4 of Zhou et al.: post-hoc calibration on top of the losses."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import after, clean, together
from benchmarks.papers.settings import ZHOU_ALL

METHODS = (
    "cross_entropy",
    "flsd53",
    "inverse_focal",
    "dual_focal_released",
    "kde_xe",
    "aurc",
    "selective_au_released",
    "selective_au",
)
ORDER = (
    "accuracy; ece_mass; ece_mass, temperature; accuracy, metamis; ece_mass, metamis; accuracy, metaacc; "
    "ece_mass, metaacc"
)
OTHERS = tuple(name for name in METHODS if not name.startswith("selective"))

ITEM = Item(
    name="p2-table4",
    title="equal-mass ECE after temperature scaling, MetaMis and MetaAcc",
    source="Zhou et al. (2025), Table 4",
    setting="CIFAR-10, CIFAR-100 and Tiny-ImageNet, ten networks, three seeds; accuracy in brackets.",
    here="ResNet-18, CIFAR-10; calibrators fitted here on the kept validation logits (Tiny-ImageNet-32 keeps "
    "none: raw and temperature only).",
    methods=METHODS,
    smoke=("cross_entropy", "selective_au"),
    values=together(
        clean(METHODS, ("accuracy",)),
        clean(METHODS, ("ece_mass",), ("raw", "temperature")),
        after(METHODS, ("metamis", "metaacc"), ("accuracy", "ece_mass")),
    ),
    reported=(
        *reported(
            "CIFAR-10, ResNet-50",
            ORDER,
            {
                "cross_entropy": (94.5, 2.97, 2.60, 84.7, 0.83, 77.5, 0.44),
                "flsd53": (93.6, 3.92, 1.71, 86.6, 1.99, 74.9, 1.85),
                "inverse_focal": (94.4, 4.03, 3.64, 84.3, 0.85, 78.7, 0.58),
                "dual_focal_released": (94.1, 1.21, 0.94, 85.5, 0.79, 72.0, 1.04),
                "kde_xe": (94.5, 3.07, 2.66, 84.3, 0.68, 76.9, 0.51),
                "aurc": (93.3, 2.42, 2.41, 87.1, 1.21, 90.0, 1.77),
                "selective_au_released": (92.5, 1.35, 1.04, 88.8, 0.67, 89.7, 0.77),
            },
        ),
        *reported(
            "CIFAR-10, PreResNet-56",
            ORDER,
            {
                "cross_entropy": (94.0, 2.62, 2.52, 85.9, 0.94, 75.9, 0.38),
                "flsd53": (93.0, 5.42, 0.97, 88.7, 1.53, 75.8, 2.12),
                "inverse_focal": (94.1, 3.85, 3.75, 84.8, 1.05, 82.7, 1.27),
                "dual_focal_released": (93.7, 2.05, 0.99, 86.0, 1.08, 68.2, 1.45),
                "kde_xe": (94.1, 2.55, 2.44, 85.3, 0.90, 81.9, 0.89),
                "aurc": (92.6, 2.56, 2.76, 87.8, 1.49, 91.5, 2.49),
                "selective_au_released": (92.8, 0.85, 0.50, 89.3, 0.39, 90.5, 0.52),
            },
        ),
    ),
    claims=tuple(
        Better(
            f"in most cases selective AU{form} has the lowest equal-mass ECE {when} temperature scaling",
            name,
            OTHERS,
            quantity,
        )
        for name, form in (("selective_au", ""), ("selective_au_released", " as released"))
        for quantity, when in (("ece_mass", "before"), ("ece_mass, temperature", "after"))
    ),
    paper=ZHOU_ALL,
)
