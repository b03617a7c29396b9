"""MDCA: difference of mean confidence and frequency of every class."""

from confide.core.batch_terms import class_mean_gap
from confide.core.class_means import log_p_and_class_means
from confide.core.shapes import Labels, Logits, Scalar
from confide.penalties.family import penalty


@penalty("mdca", paper="Hebbalaguppe et al., 2022, A Stitch in Time Saves Nine, arXiv:2203.13834")
def mdca(logits: Logits, labels: Labels) -> Scalar:
    """MDCA, (1/c) sum_k |mean_i p_ik - mean_i 1[y_i = k]| over the batch."""
    return class_mean_gap(log_p_and_class_means(logits, labels)[1], labels)
