"""Trust predictors: fit -> (predictions, features -> n), high = safe. Importing the package registers them all."""

from confide.trust import losses
from confide.trust.base import TRUST, Trust, fit, load, names
from confide.trust.combined import combined
from confide.trust.cross_fitting import augmented, linear_classifier, out_of_fold
from confide.trust.distances import knn, rmd, trust_score
from confide.trust.oracles import binary_cross_entropy, binary_focal, class_balanced, steep_slope, tcp
from confide.trust.scores import energy, ensemble, entropy, margin, max_logit, maxlogit_pnorm, mc_dropout, mcp
