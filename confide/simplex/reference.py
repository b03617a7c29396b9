"""The statistics of `simplex` in plain torch: for soft labels, other devices, torch.compile and second derivatives.

Also the device flags: on an accelerator a bad row must not make the host wait, so it sets a bit that `check` reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from confide.types import PerSample, Scalar

STATISTICS = (
    *("log_p_true", "p_true", "entropy", "p_max", "prediction", "p_second", "p_other", "p_below"),
    *("sum_squares", "mean_log_p", "log_sum_exp", "norm", "excess"),
)
BAD_LABEL, BAD_LOGITS, BAD_NUMBER = 1, 2, 3
_FLAGS: dict[torch.device, Tensor] = {}
FEW_CLASSES, MANY_ROWS = 32, 128


class Request(NamedTuple):
    """What is wanted of one pass: names of statistics, the order of the norm, the margin of `excess`."""

    names: tuple[str, ...]
    order: float = 2.0
    margin: float = 0.0


class FusedLoss(NamedTuple):
    """A loss that was made whole: its mean beside its values, as the mean of the values would cost more.

    On a GPU both come from one node of autograd; where they are functions, a caller makes the one that it needs.
    """

    values: PerSample | Callable[[], PerSample]
    mean: Scalar | Callable[[], Scalar]


LossValues: TypeAlias = PerSample | FusedLoss
"""What a loss gives for a batch: the values alone, or with their mean."""

NO_LABEL = -0x5EED5EED5EED5EED
"""What torch is to ignore where a loss of its own is called: any other label out of range it refuses on a CPU."""


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype statistics are computed in: float32 for half precision, else the logits' own."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def across(logits: Tensor) -> bool:
    """Whether columns are quicker: on a CPU torch takes 17 ns an element along rows of few classes, 2 down columns."""
    n, num_classes = logits.shape
    return num_classes <= FEW_CLASSES and n >= MANY_ROWS


def log_softmax(logits: Tensor) -> Tensor:
    """Over the classes."""
    return torch.log_softmax(logits.t(), dim=0).t() if across(logits) else torch.log_softmax(logits, dim=1)


def plain_statistics(
    logits: Tensor, labels: Tensor | None, request: Request, checked: bool = False
) -> tuple[Tensor, ...]:
    """All of `request` by differentiable torch operations, in their order.

    Args:
        checked: whether labels out of range are refused, by the caller or by torch; else their rows become NaN.
    """
    wide = logits.to(accumulator(logits.dtype))
    plain = _Plain(wide, labels, request, checked)
    return tuple(getattr(plain, name)() for name in request.names)


class _Plain:
    """Shares log-probabilities between the statistics of one request."""

    def __init__(self, logits: Tensor, labels: Tensor | None, request: Request, checked: bool) -> None:
        self.logits, self.request = logits, request
        self.log_p = log_softmax(logits) if checked else torch.log_softmax(logits, dim=1)
        self.soft = labels is not None and labels.ndim == 2
        self.truth, self.bad = labels, None
        self.labels = labels if labels is None or self.soft else labels[:, None]
        if labels is not None and not self.soft and not checked:
            bad = (labels < 0) | (labels >= logits.shape[1])
            if logits.device.type != "cpu":
                set_flag(bad, BAD_LABEL)
                set_flag(~torch.isfinite(self.log_p.detach().sum(dim=1)), BAD_LOGITS)
            self.bad = bad
            self.labels = labels.clamp(0, logits.shape[1] - 1)[:, None]

    def _at_label(self, values: Tensor) -> Tensor:
        assert self.labels is not None, "the statistic needs labels"
        if self.soft:
            return (values * self.labels.to(values.dtype)).sum(dim=1)
        own = values.gather(1, self.labels).squeeze(1)
        return own if self.bad is None else own.masked_fill(self.bad, torch.nan)

    def log_p_true(self) -> Tensor:
        if self.truth is not None and not self.soft and self.bad is None:
            return -functional.nll_loss(self.log_p, self.truth, reduction="none", ignore_index=NO_LABEL)
        return self._at_label(self.log_p)

    def p_true(self) -> Tensor:
        return self._at_label(self.log_p.exp())

    def entropy(self) -> Tensor:
        return -(self.log_p.exp() * self.log_p).sum(dim=1)

    def prediction(self) -> Tensor:
        return self.log_p.detach().argmax(dim=1)

    def p_max(self) -> Tensor:
        return self.log_p.max(dim=1).values.exp()

    def p_second(self) -> Tensor:
        top = self.log_p.detach().argmax(dim=1, keepdim=True)
        return self.log_p.scatter(1, top, -torch.inf).max(dim=1).values.exp()

    def p_other(self) -> Tensor:
        assert self.labels is not None
        return self.log_p.scatter(1, self.labels, -torch.inf).max(dim=1).values.exp()

    def p_below(self) -> Tensor:
        probs = self.log_p.exp()
        assert self.labels is not None
        below = probs.detach() < probs.detach().gather(1, self.labels)
        return torch.where(below, probs, torch.zeros_like(probs)).max(dim=1).values

    def sum_squares(self) -> Tensor:
        return self.log_p.exp().square().sum(dim=1)

    def mean_log_p(self) -> Tensor:
        return self.log_p.mean(dim=1)

    def log_sum_exp(self) -> Tensor:
        return torch.logsumexp(self.logits, dim=1)

    def norm(self) -> Tensor:
        order = self.request.order
        if order in (1.0, 2.0):
            whole: Tensor = torch.linalg.vector_norm(self.logits, order, dim=1)
            return whole
        # By the largest first: 1e4 to the power of 10 is more than float32 can hold.
        largest = self.logits.detach().abs().amax(dim=1).clamp_min(torch.finfo(self.logits.dtype).tiny)
        norm: Tensor = largest * torch.linalg.vector_norm(self.logits / largest[:, None], order, dim=1)
        return norm

    def excess(self) -> Tensor:
        top = self.logits.max(dim=1, keepdim=True).values
        return (top - self.logits - self.request.margin).clamp_min(0).mean(dim=1)


def refuse_second_derivative(what: str, advice: str) -> None:
    """Called in a backward that has no derivative of its own: with create_graph=True it would be silently wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"{what} cannot be differentiated twice (create_graph=True); {advice}")


def device_flag(device: torch.device) -> Tensor:
    """The flags of a device: a bad label, logits that are not finite, an id or group out of range."""
    if device not in _FLAGS:
        _FLAGS[device] = torch.zeros(3, dtype=torch.int32, device=device)
    return _FLAGS[device]


def set_flag(bad: Tensor, code: int) -> None:
    """Remember on the device that a row was bad; never waits."""
    flag = device_flag(bad.device)
    flag[code - 1].bitwise_or_(bad.any().to(torch.int32))


def read_flags() -> list[str]:
    """One clear line per problem seen since the last reading, and the flags cleared; waits for the devices."""
    problems = []
    for device, flag in _FLAGS.items():
        bad_label, bad_logits, bad_number = flag.tolist()
        flag.zero_()
        if bad_label:
            problems.append(
                f"labels must lie in [0, number of classes), got one outside on {device} since the last check; "
                "its loss is NaN: do labels start at 1? give one logit per class and labels from 0"
            )
        if bad_logits:
            problems.append(
                f"logits must be finite, got NaN or infinity on {device} since the last check; "
                "lower the learning rate, or mend the model or data that made it"
            )
        if bad_number:
            problems.append(
                f"ids and groups must lie within num_samples and num_groups, got one outside on {device} since the "
                "last check; it was counted with the nearest: set the option to the true number"
            )
    return problems
