"""What the demo shows while it works: a live view in a terminal, now and then a line anywhere else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from smena.demo.children import Child
from smena.demo.counts import ENDED, OPEN, Counts

_LINE_EVERY = 2.0
_RATE_OVER = 3.0


class Display:
    """Shows counts, rate, the oldest waiting job and who works. Seconds are counted from the start of `running`."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._live: Live | None = None
        self._began = time.monotonic()
        self._last_line = 0.0
        self._ended: deque[tuple[float, int]] = deque([(self._began, 0)])

    @contextmanager
    def running(self) -> Iterator[None]:
        """The time in which `show` and `tell` are called; it begins at second 0."""
        self._began = self._last_line = time.monotonic()
        self._ended = deque([(self._began, 0)])
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            yield
        self._live = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def tell(self, what: str) -> None:
        """Something happened: a line that stays."""
        self._console.print(f"{self.seconds:6.1f} s  {what}", highlight=False, markup=False, soft_wrap=True)

    def show(self, counts: Counts, workers: list[Child]) -> None:
        """The present counts, which replace the last ones in a terminal."""
        now = time.monotonic()
        self._ended.append((now, counts.ended))
        while now - self._ended[0][0] > _RATE_OVER and len(self._ended) > 2:
            self._ended.popleft()
        (then, before) = self._ended[0]
        rate = (counts.ended - before) / max(now - then, 0.001)
        states = " · ".join(f"{counts.states[s]:,} {s}" for s in (*OPEN, *ENDED) if counts.states.get(s))
        speed = f"{rate:,.0f}/s   oldest waits {counts.oldest:.1f} s"
        if self._live is not None:
            self._live.update(self._view(counts, speed, states, workers), refresh=True)
        elif now - self._last_line >= _LINE_EVERY:
            self._last_line = now
            self.tell(f"{states}   {speed}")

    def _view(self, counts: Counts, speed: str, states: str, workers: list[Child]) -> Group:
        table = Table.grid(padding=(0, 2))
        for worker in workers:
            table.add_row(worker.name, f"process {worker.pid}", _condition(worker))
        bar = Table.grid(padding=(0, 2))  # in a row, because a bar alone does not end its line
        bar.add_row(
            ProgressBar(total=self._total, completed=counts.ended, width=40), f"{counts.ended:,} of {self._total:,}"
        )
        return Group("", bar, Text(f"{self.seconds:.1f} s   {speed}"), Text(states), table)


def _condition(worker: Child) -> Text:
    if worker.killed:
        return Text("killed", style="red")
    if worker.lives:
        return Text("works", style="green")
    return Text(f"ended with exit code {worker.code}", style="red")
