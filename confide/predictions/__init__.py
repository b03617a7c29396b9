"""Predictions: outputs, labels and ids of one split."""

from confide.predictions.outputs import (
    LogitOutputs as LogitOutputs,
    Outputs as Outputs,
    PairOutputs as PairOutputs,
    ProbabilityOutputs as ProbabilityOutputs,
    StreamedOutputs as StreamedOutputs,
    probability_doubt as probability_doubt,
)
from confide.predictions.record import (
    Predictions as Predictions,
    class_values as class_values,
    class_words as class_words,
    feature_rows as feature_rows,
    label_doubt as label_doubt,
    need_predictions as need_predictions,
    predictions_from_columns as predictions_from_columns,
    probability_blocks as probability_blocks,
    row_word as row_word,
)
from confide.predictions.tables import IMAGE as IMAGE, LABEL_NAME as LABEL_NAME, SAMPLE as SAMPLE
