"""Figure 4 of Luo et al. (2021): risk against coverage, and the choice of alpha-."""

import numpy as np

from benchmarks.lib.claims import Better, Trend
from benchmarks.lib.items import Item, Study
from benchmarks.lib.values import Value
from benchmarks.papers import trusted
from benchmarks.papers.settings import LUO


def values(study: Study) -> list[Value]:
    """Risk per coverage by loss, and TPR and TNR along alpha-."""
    values = []
    for row in (measured for measured in trusted.rows(study) if measured["domain"] == "clean"):
        name, predictor, seed = trusted.name_of(row), row["predictor"], row["seed"]
        if predictor in ("mcp", *trusted.LOSSES):
            values += [Value(name, predictor, "risk", seed, 100 * v, (k + 1) / 10) for k, v in enumerate(row["risk"])]
            values.append(Value(name, predictor, "mean risk over coverages", seed, 100 * float(np.mean(row["risk"]))))
    for row in trusted.rows(study, spoilt=True):
        if row["domain"] == "clean" and ", alpha- " in row["predictor"]:
            alpha = float(row["predictor"].rpartition(" ")[2])
            values += [
                Value(trusted.name_of(row), "steep_slope", k, row["seed"], 100 * row[k], alpha) for k in ("tpr", "tnr")
            ]
    return values


ITEM = Item(
    name="p3-figure4",
    title="risk and coverage; TPR and TNR along alpha-",
    source="Luo et al. (2021), Figure 4",
    setting="ViT on ImageNet; curves without printed numbers; alpha- = 3 is chosen.",
    here="ResNet-18 on CIFAR-10.",
    axes={"": "coverage", "tpr": "alpha-", "tnr": "alpha-"},
    values=values,
    origin=trusted.origin,
    datasets=("cifar10",),
    baseline="binary_cross_entropy",
    claims=(
        Better(
            "steep slope has the lowest risk",
            "steep_slope",
            ("binary_cross_entropy", "binary_focal", "tcp"),
            "mean risk over coverages",
        ),
        Trend("TNR rises with alpha-", ("steep_slope",), "tnr"),
        Trend("TPR falls with alpha-", ("steep_slope",), "tpr", -1),
    ),
    paper=LUO,
)
