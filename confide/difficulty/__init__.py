"""How hard is every sample, from features or from a training log: high = hard, always."""

from confide.difficulty.agreement import agreement as agreement
from confide.difficulty.bands import error_by_difficulty as error_by_difficulty
from confide.difficulty.bands import groups as groups
from confide.difficulty.confusion import confusion as confusion
from confide.difficulty.correctness import correctness as correctness
from confide.difficulty.entropy import entropy as entropy
from confide.difficulty.explain import explain as explain
from confide.difficulty.explain import read_vocabulary as read_vocabulary
from confide.difficulty.family import DIFFICULTY as DIFFICULTY
from confide.difficulty.family import Fitted as Fitted
from confide.difficulty.family import fit as fit
from confide.difficulty.family import names as names
from confide.difficulty.family import score as score
from confide.difficulty.harden import harden as harden
from confide.difficulty.kmeans import kmeans as kmeans
from confide.difficulty.log import CountLog as CountLog
from confide.difficulty.log import ProbabilityLog as ProbabilityLog
from confide.difficulty.loss import loss as loss
from confide.difficulty.md import md as md
from confide.difficulty.prototype import prototype as prototype
from confide.difficulty.recorder import Recorder as Recorder
from confide.difficulty.recorder import open_log as open_log
from confide.difficulty.rmd import rmd as rmd
from confide.difficulty.verdicts import verdicts as verdicts
from confide.difficulty.verdicts import with_verdicts as with_verdicts
from confide.difficulty.weights import weights as weights
