"""Generated answers become predictions: what is read, what is refused, and what counts as one draw."""

import json
import pickle
from collections import defaultdict

import numpy as np
import pytest
import torch

import confide
from confide import answers
from confide.checks import InputError
from confide.cli.main import main
from confide.predictions import PairOutputs

STATED = {
    "85 %": 0.85,
    "I would say 80-90 percent": 0.85,
    "The answer is 42. Confidence: 0.7": 0.7,
    "8 out of 10": 0.8,
    "9/10": 0.9,
    "85": 0.85,
    "Very likely.": 0.875,
    "unlikely": 0.325,
    "almost certainly not": 0.03,
    "50/50": 0.5,
    "1": None,
    "no idea": None,
    "120 %": None,
    "20 % or 30 %": None,
    "I am not almost certain": None,
}


@pytest.mark.parametrize("text", STATED)
def test_a_stated_confidence_is_read_by_the_rule(text):
    assert answers.parse_confidence(text) == pytest.approx(STATED[text])


def test_numbers_out_of_ten_and_words_of_ones_own_are_read():
    assert answers.parse_confidence("7", out_of=10) == 0.7
    assert answers.parse_confidence("high", words={"High": 0.9}) == 0.9


def test_what_cannot_be_read_is_counted_and_left_out_or_given_a_confidence():
    texts = ["90 %", "dunno", "likely"]
    with pytest.warns(UserWarning, match=r"1 of 3 answers .* 'dunno'; they are left out"):
        assert answers.verbalised(texts, [1, 0, 1], ids=["a", "b", "c"]).ids.tolist() == ["a", "c"]
    with pytest.warns(UserWarning, match="they get the confidence 0.5"):
        assert answers.verbalised(texts, [1, 0, 1], unparsed=0.5).facts.confidence.tolist() == [0.9, 0.5, 0.675]
    with pytest.raises(InputError, match="no text states a confidence"):
        answers.verbalised(["hm"], [1])


def test_choices_of_different_number_share_one_record():
    p = answers.multiple_choice([[-1.0, -2.0], [-5.0, -4.0, -6.0]], [0, 2])
    assert p.probabilities()[0].tolist() == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0.0])
    assert p.facts.correct.tolist() == [True, False]
    with pytest.raises(InputError, match="do they start at 1"):
        answers.multiple_choice([[-1.0, -2.0]], [2])


def test_agreement_takes_the_answer_of_most_and_of_equals_the_first():
    p = answers.agreement([["b", "A.", "a"], ["x", "y"]], ["a", ["y", "z"]])
    assert p.columns["answer"].tolist() == ["A.", "x"]
    assert p.facts.confidence.tolist() == pytest.approx([2 / 3, 0.5])
    assert p.facts.correct.tolist() == [True, False]
    close = answers.agreement(
        [["1.0", "1.01", "3"]], correct=[[1, 1, 0]], same=lambda a, b: abs(float(a) - float(b)) < 0.1
    )
    assert (close.facts.confidence.item(), close.facts.correct.item()) == (pytest.approx(2 / 3), True)
    given = answers.agreement([["a", "b", "b"]], answers=["a"], correct=[0])
    assert (given.facts.confidence.item(), given.facts.correct.item()) == (pytest.approx(1 / 3), False)


def clustered(questions=60, each=5, seed=0):
    rng = np.random.default_rng(seed)
    ability = rng.beta(2, 2, questions).repeat(each)
    right = rng.random(questions * each) < ability
    return confide.Predictions.from_pairs(
        right, np.clip(ability, 0.01, 0.99), unit="question", question=np.arange(questions).repeat(each)
    )


def test_a_unit_travels_through_rows_files_calibrators_and_widens_every_interval(tmp_path):
    p = clustered()
    apart = p.replace(unit=None)
    p.save(tmp_path / "p.parquet")
    read = confide.Predictions.load(tmp_path / "p.parquet")
    assert read.take(np.arange(50)).unit == confide.calibrators.fit("platt", read)(read).unit == "question"
    wide, narrow = confide.metrics.accuracy(read), confide.metrics.accuracy(apart)
    by_evaluation = next(m for m in confide.evaluate(p, ["accuracy"]).measurements)
    assert wide.high - wide.low > 1.3 * (narrow.high - narrow.low)
    assert (by_evaluation.low, by_evaluation.high) == (wide.low, wide.high)
    other = p.columns["question"] % 2 == 0  # another model: right on all answers to every second question
    pairs = [confide.compare(q, q.replace(outputs=PairOutputs(other, q.facts.confidence)))[0] for q in (p, apart)]
    assert pairs[0].high - pairs[0].low > 1.3 * (pairs[1].high - pairs[1].low)


def test_units_stay_within_one_fold():
    from confide.calibrators.groups import label_folds

    p = clustered()
    fold, question = label_folds(p, 5, 0), p.columns["question"]
    assert all(len(set(fold[question == q])) == 1 for q in range(60))
    assert len(set(fold)) == 5


@pytest.mark.parametrize(
    "call",
    [
        lambda p: confide.operating_point(p, risk=0.3),
        lambda p: confide.evaluation.find_slices(p, by=["question"]),
        lambda p: confide.monitor.Monitor(p, file="watch.jsonl"),
    ],
)
def test_promises_that_count_single_samples_refuse_several_of_one_unit(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"300 of 60 units \('question'\); take one of each unit"):
        call(clustered())


def test_a_watch_of_answers_that_are_all_as_sure_as_can_be_starts(tmp_path):
    confidence = np.where(np.arange(200) % 2, 0.99, 0.7)
    reference = confide.Predictions.from_pairs(np.arange(200) % 4 > 0, confidence, [f"a{k}" for k in range(200)])
    watch = confide.monitor.Monitor(reference, file=tmp_path / "watch.jsonl")
    assert watch.update(reference).drifted == ()


def lines(path, *records):
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")


def test_samples_of_lm_evaluation_harness_are_read(tmp_path):
    choices = {"gen_args_0": {"arg_0": "Q", "arg_1": " yes"}, "gen_args_1": {"arg_0": "Q", "arg_1": " no"}}
    first = {"doc_id": 0, "doc": {"subject": "law"}, "target": "1", "arguments": [["Q", " aa"], ["Q", " b"]]}
    first |= {"filtered_resps": [["-3.0", "False"], ["-2.0", "False"]], "acc": 1.0}
    second = {"doc_id": 1, "doc": {"subject": "art"}, "target": "no", "arguments": choices}
    second |= {"filtered_resps": [[-1.0, True], [-2.0, False]], "acc": 1.0}
    path = tmp_path / "samples_bool_2024-05-01T10-00-00.123.jsonl"
    lines(path, first, second)
    with pytest.warns(UserWarning, match="1 of 2 answers .* judged otherwise by its 'acc'"):
        p = answers.from_lm_eval(path, topic="subject")
    assert (p.ids.tolist(), p.labels.tolist()) == (["bool/0", "bool/1"], [1, 1])
    assert p.columns["topic"].tolist() == ["law", "art"]
    by_length = answers.from_lm_eval(path, per_length=True)
    assert by_length.facts.prediction.tolist() == [0, 0]  # -3.0 / 2 beats -2.0 / 1; -1 / 3 beats -2 / 2
    drawn = {"doc_id": 0, "target": "4", "resps": [["4", "5", "4"]], "filtered_resps": ["4"]}
    lines(tmp_path / "samples_sum.jsonl", drawn | {"metrics": ["exact_match"], "exact_match": 1.0})
    p = answers.from_lm_eval(tmp_path / "samples_sum.jsonl")
    assert (p.facts.confidence.item(), p.facts.correct.item()) == (pytest.approx(2 / 3), True)
    with pytest.raises(InputError, match="mixes multiple choice"):
        answers.from_lm_eval(tmp_path)


def test_of_several_filters_of_lm_evaluation_harness_one_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record = {
        "target": "4",
        "resps": [["It is 4. Confidence: 80%"]],
        "filtered_resps": ["4"],
        "metrics": ["exact_match"],
    }
    found = [
        record | {"doc_id": k, "filter": name, "exact_match": float(name == "flexible-extract" or k == 0)}
        for name in ("strict-match", "flexible-extract")
        for k in range(2)
    ]
    lines(tmp_path / "samples_gsm8k.jsonl", *found)
    with pytest.raises(InputError, match=r"2 filters \(flexible-extract, strict-match\); name one"):
        answers.from_lm_eval("samples_gsm8k.jsonl")
    with pytest.raises(InputError, match="no filter 'strict'; did you mean 'strict-match'"):
        answers.from_lm_eval("samples_gsm8k.jsonl", filter="strict")
    assert main(["answers", "samples_gsm8k.jsonl", "--filter", "strict-match", "--out", "p.parquet"]) == 0
    p = confide.Predictions.load("p.parquet")
    assert (p.ids.tolist(), p.facts.correct.tolist()) == (["gsm8k/0", "gsm8k/1"], [True, False])
    assert p.facts.confidence.tolist() == pytest.approx([0.8, 0.8])
    # A task of one filter keeps it, whatever the others are read by.
    lines(tmp_path / "samples_sum.jsonl", record | {"doc_id": 0, "filter": "none", "exact_match": 1.0})
    assert len(answers.from_lm_eval(".", filter="strict-match")) == 3


def test_a_number_in_an_answer_of_lm_evaluation_harness_is_no_confidence(tmp_path):
    record = {"target": "42", "metrics": ["exact_match"], "exact_match": 1.0}
    plain, sure = "She saves 25 % of it. #### 42", "She saves 25 % of it. #### 42. Confidence: 80 %"
    rows = [record | {"doc_id": k, "resps": [[text]], "filtered_resps": ["42"]} for k, text in enumerate([plain, sure])]
    lines(tmp_path / "samples_gsm8k.jsonl", *rows)
    with pytest.warns(UserWarning, match="1 of 2 answers state no confidence"):
        p = answers.from_lm_eval(tmp_path / "samples_gsm8k.jsonl")
    assert (p.ids.tolist(), p.facts.confidence.tolist()) == (["gsm8k/1"], [0.8])
    lines(tmp_path / "samples_gsm8k.jsonl", rows[0])
    with pytest.raises(InputError, match="must state a confidence behind the word 'confidence', or have several"):
        answers.from_lm_eval(tmp_path / "samples_gsm8k.jsonl", unparsed=0.5)


class _Harm:
    def __reduce__(self):
        return print, ("this must never run",)


def test_results_of_lm_polygraph_are_read_without_running_them(tmp_path, capsys):
    estimations, metrics = defaultdict(list), defaultdict(list)
    estimations["sequence", "MaximumSequenceProbability"] = [0.1, 2.0, float("nan")]
    estimations["sequence", "Perplexity"] = [np.float64(-1.0), np.float64(3.0), np.float64(0.0)]
    metrics["sequence", "Rouge_rougeL"] = [0.9, 0.1, 1.0]
    record = {"estimations": estimations, "gen_metrics": metrics, "stats": {"greedy_texts": ["x", "y", "z"]}}
    torch.save(record, tmp_path / "run.man")
    with pytest.warns(UserWarning, match="1 of 3 .* are missing"):
        p = answers.from_lm_polygraph(tmp_path / "run.man", "MaximumSequenceProbability", "Rouge_rougeL", threshold=0.5)
    assert p.facts.confidence.tolist() == pytest.approx([np.exp(-0.1), np.exp(-2.0)])
    assert (p.facts.correct.tolist(), p.columns["answer"].tolist()) == ([True, False], ["x", "y"])
    with pytest.warns(UserWarning, match="no probability"):
        p = answers.from_lm_polygraph(tmp_path / "run.man", "Perplexity", "Rouge_rougeL", threshold=0.5)
    assert torch.logit(p.facts.confidence).tolist() == pytest.approx([1.0, -3.0, 0.0])
    with pytest.raises(InputError, match="threshold="):
        answers.from_lm_polygraph(tmp_path / "run.man", "Perplexity", "Rouge_rougeL")
    (tmp_path / "old.man").write_bytes(pickle.dumps({"estimations": _Harm()}))
    torch.save({"estimations": _Harm()}, tmp_path / "new.man")
    for name in ("old.man", "new.man"):
        with pytest.raises(InputError, match="must be a readable results file"):
            answers.from_lm_polygraph(tmp_path / name, "Perplexity", "Rouge_rougeL")
    assert "never" not in capsys.readouterr().out


def test_the_command_writes_predictions_that_evaluate_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "u.csv").write_text(
        "response,noncontradiction,gold,area\nParis.,0.9,paris,a\n1900,0.4,1901,b\nx,,x,b\n"
    )
    call = ["answers", "u.csv", "--from", "uqlm", "--score", "noncontradiction", "--reference", "gold"]
    assert main([*call, "--topic", "area", "--out", "u.parquet"]) == 0
    assert "1 of 3 scores" in capsys.readouterr().err
    assert confide.Predictions.load("u.parquet").columns["topic"].tolist() == ["a", "b"]
    lines(tmp_path / "s.jsonl", *({"q": k // 2, "said": f"{60 + k} %", "ok": k % 2} for k in range(12)))
    flags = ["--stated", "said", "--correct", "ok", "--question", "q"]
    assert main(["answers", "s.jsonl", *flags, "--out", "s.parquet", "--json"]) == 0
    assert main(["evaluate", "s.parquet", "--metrics", "accuracy", "--out", "e"]) == 0
    assert main(["answers", "s.jsonl", *flags, "--metric", "acc", "--out", "s.parquet"]) == 1
    assert "takes no --metric" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["discrete_entropy_value", "entropy_values_whitebox", "num_semantic_set"])
def test_what_uqlm_writes_high_for_unsure_answers_is_no_confidence(tmp_path, name):
    (tmp_path / "u.csv").write_text(f"prompt,response,sampled_responses,{name}\nq,Paris,\"['Paris', 'Rome']\",0.2\n")
    with pytest.raises(InputError, match=f"'{name}' of .* is high for unsure answers; name a score"):
        answers.from_uqlm(tmp_path / "u.csv", name)


@pytest.mark.parametrize("name", ["discrete_confidence_score", "semantic_negentropy", "mean_token_negentropy"])
def test_scores_as_uqlm_names_them_in_its_table_are_read(tmp_path, name):
    (tmp_path / "u.csv").write_text(f"prompt,response,sampled_responses,{name}\nq,Paris,\"['Paris', 'Rome']\",0.2\n")
    assert answers.from_uqlm(tmp_path / "u.csv", name).facts.confidence.tolist() == [0.2]


def test_answers_judged_by_anything_but_0_and_1_are_refused():
    with pytest.raises(InputError, match=r"must be 0 or 1, got 0\.5 at answer 1"):
        answers.agreement([["a", "a"], ["b", "b"]], correct=[[1, 1], [0.5, 0]])
    with pytest.raises(InputError, match=r"labels must be places of choices from 0, got 0\.5 at question 0"):
        answers.multiple_choice([[-1.0, -2.0]], [0.5])
    with pytest.raises(InputError, match="one for each of the 2 answers, got 1"):
        answers.agreement([["a"], ["b"]], ["a"])


def test_a_table_of_uqlm_may_have_a_column_of_the_name_of_an_argument(tmp_path):
    (tmp_path / "u.csv").write_text("response,noncontradiction,graded,confidence\nParis,0.9,1,7\nRome,0.4,0,8\n")
    pairs = answers.from_uqlm(tmp_path / "u.csv", "noncontradiction", correct="graded")
    assert pairs.facts.confidence.tolist() == [0.9, 0.4]
    assert pairs.columns["confidence"].tolist() == [7, 8]


def test_answers_that_few_lines_judge_are_not_held_against_them_and_a_choice_without_text_is_told(tmp_path):
    line = {"doc": {}, "target": "1", "arguments": [["Q", " aa"], ["Q", " b"]]}
    line |= {"filtered_resps": [["-3.0", "False"], ["-2.0", "False"]]}
    path = tmp_path / "samples_bool.jsonl"
    lines(path, {"doc_id": 0, "acc": 0.0} | line, {"doc_id": 1} | line)
    assert answers.from_lm_eval(path).facts.correct.tolist() == [True, True]
    lines(path, {"doc_id": 0} | line | {"arguments": [["Q", " aa"], ["Q"]]})
    assert answers.from_lm_eval(path).facts.correct.tolist() == [True]
    with pytest.raises(InputError, match="question 0 must have finite log-probabilities of two choices"):
        answers.from_lm_eval(path, per_length=True)
