"""Shift: the same images made worse, in another domain, or attacked; data of other classes; wrong labels.

`corrupt` applies a shift by its word (`names`), `attack` an adversary. The shifts themselves, in the modules below,
take draws and the parameters of a severity: `corrupt` calls them.
"""

from confide.random import noisy_labels
from confide.shift import digital, domains, noise_and_blur, weather
from confide.shift.attacks import ATTACKS, attack, check_attack
from confide.shift.base import SEVERITIES, SHIFTS, check_shift, corrupt, corrupt_split, form_of, names
from confide.shift.digital import jpeg_reencoded
from confide.shift.ood import OOD_PAIRS, ood_pair, ood_split
