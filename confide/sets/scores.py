"""The scores of a class behind the sets: lac, aps, raps, saps, top_k. Low for likely classes.

Classes are in falling order of probability, of equals the lower class first; `u` is a draw of the sample, or 1.
"""

from __future__ import annotations

import numpy as np

from confide.sets.base import SETS, ClassRows
from confide.types import Floats

LARGEST = 1e9


@SETS.add("lac", paper="Sadinle, Lei & Wasserman, 2019, JASA 114", ordered=False, ranges={}, choices={})
def lac(rows: ClassRows) -> Floats:
    """Least ambiguous classes, s = 1 - p: the smallest sets on average.

    When: the smallest sets on average are wanted.
    When not: hard samples must be covered as often as easy ones: they are covered less.

    Args:
        rows: probabilities, in any order.

    Returns:
        A score a class.

    Example:
        >>> val = confide.Predictions.from_probs([[0.9, 0.1]] * 9 + [[0.6, 0.4]], [0] * 9 + [1])
        >>> confide.sets.fit("lac", val, coverage=0.8)(val)[-1].tolist()
        [True, False]
    """
    return 1.0 - rows.probs


@SETS.add(
    "aps",
    paper="Romano, Sesia & Candes, 2020, arXiv:2006.02544",
    corners=({"randomized": False},),
    ranges={},
    choices={},
)
def aps(rows: ClassRows, *, randomized: bool = True) -> Floats:
    """Adaptive prediction sets, s = (sum of all p in front) + u p: large where the model is unsure.

    When: sets shall be larger where the model is unsure, and every kind of sample covered.
    When not: the smallest sets on average are wanted.

    Args:
        rows: probabilities in falling order.
        randomized: whether u is drawn; otherwise it is 1, and the coverage is above the promise.

    Returns:
        A score a class.

    Example:
        >>> val = confide.Predictions.from_probs([[0.6, 0.3, 0.1]] * 20, [0] * 12 + [1] * 6 + [2] * 2)
        >>> confide.sets.fit("aps", val, coverage=0.8, randomized=False)(val)[0].tolist()
        [True, True, False]
    """
    return rows.before + rows.u(randomized) * rows.probs


@SETS.add(
    "raps",
    paper="Angelopoulos, Bates, Malik & Jordan, 2021, arXiv:2009.14193",
    corners=({"randomized": False}, {"penalty": 0.0, "k_reg": 1}, {"penalty": 0.1}),
    tuned={"penalty": (0.001, 0.01, 0.1, 0.2, 0.5), "k_reg": ()},
    ranges={"penalty": (0.0, LARGEST), "k_reg": (0, LARGEST)},
    choices={},
)
def raps(rows: ClassRows, *, penalty: float | None = None, k_reg: int | None = None, randomized: bool = True) -> Floats:
    """Regularised adaptive sets, s = aps + penalty max(0, rank - k_reg): no long tails of unlikely classes.

    When: classes are many: without the long tails of aps.
    When not: classes are few: aps is simpler.

    Args:
        rows: probabilities in falling order.
        penalty: of every class behind the k_reg-th; None takes the one with the smallest sets on a fifth of the fit.
        k_reg: None takes the rank that holds the promised share of the labels there.
        randomized: whether u is drawn; otherwise it is 1.

    Returns:
        A score a class.

    Example:
        >>> val = confide.Predictions.from_probs([[0.6, 0.3, 0.1]] * 20, [0] * 12 + [1] * 6 + [2] * 2)
        >>> sets = confide.sets.fit("raps", val, coverage=0.8, penalty=0.1, k_reg=1, randomized=False)
        >>> sets(val)[0].tolist()
        [True, True, False]
    """
    assert penalty is not None
    assert k_reg is not None
    return aps(rows, randomized=randomized) + penalty * np.maximum(0.0, rows.rank - k_reg)


@SETS.add(
    "saps",
    paper="Huang, Xi, Zhang, Yao, Qiu & Wei, 2024, arXiv:2310.06430",
    corners=({"randomized": False}, {"weight": 0.1}),
    tuned={"weight": (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65)},
    ranges={"weight": (0.0, LARGEST)},
    choices={},
)
def saps(rows: ClassRows, *, weight: float | None = None, randomized: bool = True) -> Floats:
    """Sorted adaptive sets, s = u p_max for the first class, else p_max + (rank - 2 + u) weight: ranks only.

    When: classes are many and only the order of the probabilities is trusted.
    When not: classes are few: aps is simpler.

    Args:
        rows: probabilities in falling order.
        weight: of a rank; None takes the one with the smallest sets on a fifth of the fit.
        randomized: whether u is drawn; otherwise it is 1.

    Returns:
        A score a class.

    Example:
        >>> val = confide.Predictions.from_probs([[0.6, 0.3, 0.1]] * 20, [0] * 12 + [1] * 6 + [2] * 2)
        >>> confide.sets.fit("saps", val, coverage=0.8, weight=0.1, randomized=False)(val)[0].tolist()
        [True, True, False]
    """
    assert weight is not None
    u, largest = rows.u(randomized), rows.probs[:, :1]
    return np.where(rows.rank == 1, u * largest, largest + (rows.rank - 2 + u) * weight)


@SETS.add(
    "top_k",
    paper="Angelopoulos, Bates, Malik & Jordan, 2021, arXiv:2009.14193",
    corners=({"randomized": True},),
    alone=True,
    ranges={},
    choices={},
)
def top_k(rows: ClassRows, *, randomized: bool = False) -> Floats:
    """The k likeliest classes, s = rank - 1 + u: every set of one size.

    When: every set must have one size, as in a list of suggestions.
    When not: easy samples shall have small sets.

    Args:
        rows: probabilities in falling order.
        randomized: whether u is drawn, which gives two sizes and the coverage exactly; otherwise it is 1.

    Returns:
        A score a class.

    Example:
        >>> val = confide.Predictions.from_probs([[0.6, 0.3, 0.1]] * 20, [0] * 12 + [1] * 6 + [2] * 2)
        >>> confide.sets.fit("top_k", val, coverage=0.8)(val)[0].tolist()
        [True, True, False]
    """
    return np.broadcast_to(rows.rank - 1 + rows.u(randomized), rows.probs.shape)
