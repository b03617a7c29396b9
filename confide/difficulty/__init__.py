"""How hard is every sample, from features or from a training log: high = hard, always."""

from confide.difficulty.base import (
    DIFFICULTY as DIFFICULTY,
    FittedDifficulty as FittedDifficulty,
    check_ending as check_ending,
    difficulty_info as difficulty_info,
    fit as fit,
    load as load,
    looks_at_labels as looks_at_labels,
    names as names,
    score as score,
)
from confide.difficulty.combined import combined as combined
from confide.difficulty.explain import explain as explain, read_vocabulary as read_vocabulary
from confide.difficulty.from_features import kmeans as kmeans, md as md, prototype as prototype, rmd as rmd
from confide.difficulty.from_logs import (
    confusion as confusion,
    correctness as correctness,
    entropy as entropy,
    loss as loss,
)
from confide.difficulty.harden import harden as harden
from confide.difficulty.label_errors import (
    LabelEvidence as LabelEvidence,
    Verdicts as Verdicts,
    verdicts as verdicts,
    with_verdicts as with_verdicts,
)
from confide.difficulty.training_logs import (
    CountLog as CountLog,
    ProbabilityLog as ProbabilityLog,
    Recorder as Recorder,
    open_log as open_log,
)
from confide.difficulty.weights import (
    GROUPED as GROUPED,
    agreement as agreement,
    error_by_difficulty as error_by_difficulty,
    groups as groups,
    weights as weights,
)
