"""The stages of an experiment as functions: open data, extract, score, train, predict, trust, calibrate, evaluate,
conclude. `confide.run` calls them one after the other and keeps what each gives in its run folder, `confide train
--recipe` and `confide predict` call some of them, and so may you.
"""

from confide.pipeline.calibration import (
    CalibrationEffect as CalibrationEffect,
    add_trust as add_trust,
    apply_calibrator as apply_calibrator,
    calibration_effect as calibration_effect,
    fit_calibrator as fit_calibrator,
    fit_trust as fit_trust,
    with_difficulty as with_difficulty,
)
from confide.pipeline.evaluation import (
    EvaluatedStage as EvaluatedStage,
    conclude as conclude,
    evaluate_model as evaluate_model,
)
from confide.pipeline.prediction import (
    PredictedData as PredictedData,
    PredictionRequest as PredictionRequest,
    predict as predict,
    predict_data as predict_data,
)
from confide.pipeline.preparation import (
    PREDICTED_CLASS as PREDICTED_CLASS,
    extract as extract,
    extractor_word as extractor_word,
    fit_difficulty as fit_difficulty,
    open_data as open_data,
    score_groups as score_groups,
    score_predicted_class as score_predicted_class,
    score_split as score_split,
)
from confide.pipeline.shards import (
    SketchJob as SketchJob,
    Workers as Workers,
    apply_to_folder as apply_to_folder,
    evaluate_folder as evaluate_folder,
    fit_temperature_on_folder as fit_temperature_on_folder,
    sample_folder as sample_folder,
    sets_of_folder as sets_of_folder,
    sketch_files as sketch_files,
    sketch_folder as sketch_folder,
)
from confide.pipeline.training import (
    loss_settings as loss_settings,
    run_training as run_training,
    run_trainings as run_trainings,
    settings_of as settings_of,
    try_training as try_training,
)

__all__ = [
    "PredictedData",
    "PredictionRequest",
    "SketchJob",
    "Workers",
    "add_trust",
    "apply_calibrator",
    "apply_to_folder",
    "calibration_effect",
    "conclude",
    "evaluate_folder",
    "evaluate_model",
    "extract",
    "fit_calibrator",
    "fit_difficulty",
    "fit_temperature_on_folder",
    "fit_trust",
    "open_data",
    "predict",
    "predict_data",
    "run_training",
    "run_trainings",
    "sample_folder",
    "score_groups",
    "score_predicted_class",
    "score_split",
    "sets_of_folder",
    "settings_of",
    "sketch_files",
    "sketch_folder",
    "try_training",
    "with_difficulty",
]
from confide.results import RAW as RAW
