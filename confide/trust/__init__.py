"""Trust predictors: fit -> (predictions, features -> n), high = safe. Importing the room registers them all."""

from confide.trust import losses
from confide.trust.binary_cross_entropy import binary_cross_entropy
from confide.trust.binary_focal import binary_focal
from confide.trust.class_balanced import class_balanced
from confide.trust.combined import combined
from confide.trust.energy import energy
from confide.trust.ensemble import ensemble
from confide.trust.entropy import entropy
from confide.trust.errors import augmented, linear_classifier, out_of_fold
from confide.trust.family import TRUST, Trust, fit, names
from confide.trust.knn import knn
from confide.trust.loading import load
from confide.trust.margin import margin
from confide.trust.max_logit import max_logit
from confide.trust.mc_dropout import mc_dropout
from confide.trust.mcp import mcp
from confide.trust.rmd import rmd
from confide.trust.steep_slope import steep_slope
from confide.trust.tcp import tcp
from confide.trust.trust_score import trust_score
