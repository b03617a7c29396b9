"""Shift: the same images made worse, in another domain, or attacked; one file per word, `corrupt` is the door."""

from confide.shift.attacks import ATTACKS, attack, check_attack
from confide.shift.brightness import brightness
from confide.shift.contrast import contrast
from confide.shift.defocus_blur import defocus_blur
from confide.shift.elastic_transform import elastic_transform
from confide.shift.family import SEVERITIES, SHIFTS, check_shift, corrupt, form_of, names
from confide.shift.fog import fog
from confide.shift.foreign import PAIRS, foreign_split, pair_of
from confide.shift.frost import frost
from confide.shift.gaussian_blur import gaussian_blur
from confide.shift.gaussian_noise import gaussian_noise
from confide.shift.glass_blur import glass_blur
from confide.shift.grey import grey
from confide.shift.impulse_noise import impulse_noise
from confide.shift.jpeg_compression import jpeg_compression
from confide.shift.label_noise import noisy_labels
from confide.shift.motion_blur import motion_blur
from confide.shift.pixelate import pixelate
from confide.shift.reencoding import jpeg_reencoded
from confide.shift.saturate import saturate
from confide.shift.shot_noise import shot_noise
from confide.shift.sketch import sketch
from confide.shift.snow import snow
from confide.shift.spatter import spatter
from confide.shift.speckle_noise import speckle_noise
from confide.shift.stylised import stylised
from confide.shift.zoom_blur import zoom_blur
