"""Shift: the same images made worse, in another domain, or attacked; data of other classes; wrong labels.

`corrupt` applies a shift by its word (`names`), `attack` an adversary. The shifts themselves take draws and the
parameters of a severity: `corrupt` calls them.
"""

from confide.random import noisy_labels
from confide.shift.attacks import ATTACKS, attack, check_attack
from confide.shift.base import SEVERITIES, SHIFTS, check_shift, corrupt, corrupt_split, form_of, names
from confide.shift.digital import (
    brightness,
    contrast,
    elastic_transform,
    jpeg_compression,
    jpeg_reencoded,
    pixelate,
    saturate,
)
from confide.shift.domains import grey, sketch, stylised
from confide.shift.noise_and_blur import (
    defocus_blur,
    gaussian_blur,
    gaussian_noise,
    glass_blur,
    impulse_noise,
    motion_blur,
    shot_noise,
    speckle_noise,
    zoom_blur,
)
from confide.shift.ood import OOD_PAIRS, ood_pair, ood_split
from confide.shift.weather import fog, frost, snow, spatter

__all__ = [
    "ATTACKS",
    "OOD_PAIRS",
    "SEVERITIES",
    "SHIFTS",
    "attack",
    "check_attack",
    "check_shift",
    "corrupt",
    "corrupt_split",
    "form_of",
    "jpeg_reencoded",
    "names",
    "noisy_labels",
    "ood_pair",
    "ood_split",
]
