"""Shift: the same images made worse, in another domain, or attacked; one file per word, `corrupt` is the door."""

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
