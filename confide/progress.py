"""Progress of work over two seconds: what, how far, how long still. A line on stderr; in a notebook tqdm's bar."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

ENGINES = ("local", "ray")
"""Who does long work on shards: processes here, or a cluster. It stands here since `--help` loads no arrays."""


class Progress:
    """`with Progress("train", total) as progress: progress.step(1, note)`; silent when quick or not wanted."""

    quiet = False
    result = ""
    """Where a verb's result will be; told once, before the first line of work that takes its time."""

    def __init__(self, what: str, total: int, *, patience: float = 2.0) -> None:
        self.what, self.total, self.patience = what, max(total, 1), patience
        self.done, self.shown, self.began, self.drawn = 0, False, time.monotonic(), 0.0
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def step(self, by: int = 1, note: str = "") -> None:
        """Move on by some units of work, with a short note such as the current loss."""
        self.done += by
        now = time.monotonic()
        passed = now - self.began
        if Progress.quiet or passed < self.patience or (now - self.drawn < 0.2 and self.done < self.total):
            return
        if Progress.result:
            print(f"the result will be in {Progress.result}", file=sys.stderr)
            Progress.result = ""
        if not self.shown:
            self._bar = _notebook_bar(self.what, self.total)
        if self._bar is not None:
            self.shown, self.drawn = True, now
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(self.done - self._bar.n)
            return
        left = passed / max(self.done, 1) * max(self.total - self.done, 0)
        self._draw(f"{self.what} {100 * min(self.done / self.total, 1):3.0f} %  {_span(left)} left  {note}", now)

    def _draw(self, line: str, now: float) -> None:
        self.shown, self.drawn = True, now
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K" + line[:110])
        elif now - self.began > 10 and self.done * 10 // self.total != (self.done - 1) * 10 // self.total:
            # In a log file a line every tenth is enough.
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self.shown and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _notebook_bar(what: str, total: int) -> Any:
    """The bar that notebooks draw, where this is one and tqdm is installed; else None."""
    if "ipykernel" not in sys.modules:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=what)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
