"""Plain float64 formulas, loops where loops are clearest, to hold the library against."""

import numpy as np


def softmax(logits):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def ece_width(confidence, correct, bins=15, closed="right", norm=1):
    edges = np.linspace(0, 1, bins + 1)
    terms = []
    for k in range(bins):
        low, high = edges[k], edges[k + 1]
        if closed == "right":
            inside = (confidence > low) & (confidence <= high) if k else confidence <= high
        else:
            inside = (confidence >= low) & (confidence < high) if k < bins - 1 else confidence >= low
        if inside.any():
            terms.append((inside.mean(), abs(confidence[inside].mean() - correct[inside].mean())))
    return combine(terms, norm)


def ece_mass(confidence, correct, bins=15, norm=1):
    order = np.argsort(confidence, kind="stable")
    index = np.arange(len(order)) * bins // len(order)
    terms = []
    for k in range(bins):
        rows = order[index == k]
        if len(rows):
            terms.append((len(rows) / len(order), abs(confidence[rows].mean() - correct[rows].mean())))
    return combine(terms, norm)


def combine(terms, norm):
    share, gap = np.array(terms).T
    return {1: (share * gap).sum(), 2: np.sqrt((share * gap**2).sum()), "max": gap.max()}[norm]


def aurc(score, correct):
    """Average over all orders within ties, by expectation of the errors among the first k."""
    values = np.unique(score)[::-1]
    total, before, errors_before = 0.0, 0, 0.0
    for value in values:
        tied = score == value
        size, errors = int(tied.sum()), float((~correct[tied]).sum())
        for k in range(1, size + 1):
            total += (errors_before + k * errors / size) / (before + k)
        before, errors_before = before + size, errors_before + errors
    return total / len(score)


def auroc(score, correct):
    right, wrong = score[correct], score[~correct]
    if not len(right) or not len(wrong):
        return np.nan
    return ((right[:, None] > wrong).sum() + (right[:, None] == wrong).sum() / 2) / (len(right) * len(wrong))


def average_precision(score, positive):
    if not positive.any():
        return np.nan
    total = 0.0
    for value in np.unique(score):
        inside = score >= value
        total += (positive & (score == value)).sum() / positive.sum() * positive[inside].mean()
    return total


def fpr_at_tpr(score, correct, tpr=0.95):
    if correct.all() or not correct.any():
        return np.nan
    for value in np.unique(score)[::-1]:
        if (score[correct] >= value).mean() >= tpr:
            return (score[~correct] >= value).mean()
    raise AssertionError("the smallest score reaches every sample")


def augrc(score, correct):
    points = [(0.0, 0.0)]
    for value in np.unique(score)[::-1]:
        inside = score >= value
        points.append((inside.mean(), (inside & ~correct).mean()))
    coverage, risk = np.array(points).T
    return float(((risk[1:] + risk[:-1]) / 2 * np.diff(coverage)).sum())


def smooth_error(confidence, correct, width, points=4001):
    grid = np.linspace(0, 1, points)
    curve = np.zeros(points)
    for c, hit in zip(confidence, correct, strict=True):
        for image in range(-4, 5):
            for centre in (c + 2 * image, -c + 2 * image):
                curve += (c - hit) * np.exp(-((grid - centre) ** 2) / (2 * width**2)) / (width * np.sqrt(2 * np.pi))
    curve = np.abs(curve) / len(confidence)
    return float(((curve[1:] + curve[:-1]) / 2).sum() / (points - 1))
