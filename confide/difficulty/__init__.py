"""How hard is every sample, from features or from a training log: high = hard, always."""

from confide.difficulty.base import DIFFICULTY, FittedDifficulty, check_ending, difficulty_info, fit, load, names, score
from confide.difficulty.combined import combined
from confide.difficulty.explain import explain, read_vocabulary
from confide.difficulty.from_features import kmeans, md, prototype, rmd
from confide.difficulty.from_logs import confusion, correctness, entropy, loss
from confide.difficulty.harden import harden
from confide.difficulty.label_errors import verdicts, with_verdicts
from confide.difficulty.training_logs import CountLog, ProbabilityLog, Recorder, open_log
from confide.difficulty.weights import agreement, error_by_difficulty, groups, weights
