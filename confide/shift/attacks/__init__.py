"""Adversaries: bounded, seeded, made on the fly from the model they attack."""

from confide.shift.attacks.family import ATTACKS, attack, check_attack, names
from confide.shift.attacks.fgsm import fgsm
from confide.shift.attacks.pgd import pgd
from confide.shift.attacks.recolour import recolour
