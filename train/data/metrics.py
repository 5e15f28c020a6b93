"""What a mean of right and wrong answers does not show: how near captions and boxes come."""

from collections.abc import Sequence

from train.data.score import overlap, read_box, score


def metrics(task: str, answers: Sequence[str], truths: Sequence[str]) -> dict[str, float]:
    """Further figures in [0, 1] about the answers to one task's questions, by name; none where the task has none.

    caption: ``bleu`` of the whole corpus (Papineni et al. 2002; 13a tokens, lower case, up to 4-grams, not smoothed)
    and ``rouge_l``, the mean F1 of the longest common subsequence (Lin 2004). ground: ``iou``, the mean overlap of the
    boxes, 0 where an answer names none, and ``accuracy_50``, the share with at least half.
    """
    if task == "caption":
        return _of_captions(answers, truths)
    if task == "ground":
        return _of_boxes(answers, truths)
    return {}


def _of_captions(answers: Sequence[str], truths: Sequence[str]) -> dict[str, float]:
    from torchmetrics.functional.text import rouge_score, sacre_bleu_score  # seconds to import

    given, wanted = list(answers), [[truth] for truth in truths]  # a tuple of texts would be taken for letters
    bleu = sacre_bleu_score(given, wanted, lowercase=True)
    rouge = rouge_score(given, wanted, rouge_keys="rougeL")
    return {"bleu": bleu.item(), "rouge_l": rouge["rougeL_fmeasure"].item()}


def _of_boxes(answers: Sequence[str], truths: Sequence[str]) -> dict[str, float]:
    right = [score("ground", answer, truth) for answer, truth in zip(answers, truths, strict=True)]
    pairs = [(read_box(answer), read_box(truth)) for answer, truth in zip(answers, truths, strict=True)]
    overlaps = [overlap(named, true) if named and true else 0.0 for named, true in pairs]
    return {"iou": sum(overlaps) / len(overlaps), "accuracy_50": sum(right) / len(right)}
