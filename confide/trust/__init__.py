"""Trust predictors: fit -> (predictions, features -> n), high = safe. Importing the package registers them all."""

from confide.trust import losses as losses
from confide.trust.base import TRUST as TRUST, Trust as Trust, fit as fit, load as load, names as names
from confide.trust.combined import combined as combined
from confide.trust.cross_fitting import (
    augmented as augmented,
    linear_classifier as linear_classifier,
    out_of_fold as out_of_fold,
)
from confide.trust.distances import knn as knn, rmd as rmd, trust_score as trust_score
from confide.trust.oracles import (
    binary_cross_entropy as binary_cross_entropy,
    binary_focal as binary_focal,
    class_balanced as class_balanced,
    steep_slope as steep_slope,
    tcp as tcp,
)
from confide.trust.scores import (
    energy as energy,
    ensemble as ensemble,
    entropy as entropy,
    margin as margin,
    max_logit as max_logit,
    maxlogit_pnorm as maxlogit_pnorm,
    mc_dropout as mc_dropout,
    mcp as mcp,
)
