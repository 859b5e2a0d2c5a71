"""The working part of the demo: workers work, one is killed in the middle, another takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from smena.demo.children import LEASE, Child, Children
from smena.demo.counts import count_jobs, held_jobs
from smena.demo.display import Display
from smena.demo.place import Place

# Longer than any pause that the demo's `Retry` makes.
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Killed:
    """Who was killed, after how many seconds of work, and how many jobs it had in its hands.

    `taken_over`: seconds from its death until the last of these jobs was given to others.
    """

    worker: str
    process: int
    held: int
    after: float
    taken_over: float | None = None


@dataclass(slots=True)
class Worked:
    """How the work went. `problems`: what should not have happened to the workers."""

    seconds: float = 0.0
    killed: Killed | None = None
    problems: list[str] = field(default_factory=list)


class Shift:
    """Watches the workers until every job has an outcome, or until nothing moves any more."""

    def __init__(
        self, place: Place, children: Children, display: Display, start_worker: Callable[[], Child], *, kill: bool
    ) -> None:
        self._place = place
        self._children = children
        self._display = display
        self._start_worker = start_worker
        self._kill = kill
        self._reported: set[str] = set()

    def work(self, total: int, workers: int) -> Worked:
        """Starts `workers` workers; with `kill`, one is killed when a third of the `total` jobs is done."""
        worked = Worked()
        display, children = self._display, self._children
        with display.running():
            for _ in range(workers):
                self._start_worker()
            ended, moved_at = 0, time.monotonic()
            while True:
                began = time.monotonic()
                counts = count_jobs(self._place)
                display.show(counts, children.workers)
                if worked.killed is not None:
                    worked.killed = self._look_for_takeover(worked.killed)
                if not counts.open:
                    break
                if self._kill and worked.killed is None and counts.ended * 3 >= total:
                    worked.killed = self._kill_one()
                children.expect_provider()
                self._look_for_dead(worked)
                if not any(worker.lives for worker in children.workers):
                    worked.problems.append("no worker is left")
                    break
                now = time.monotonic()
                if counts.ended != ended:
                    ended, moved_at = counts.ended, now
                if now - moved_at > _PATIENCE:
                    worked.problems.append(f"no job ended within {_PATIENCE:.0f} s")
                    break
                # Counting is a small part of the work, however many jobs there are.
                pause = 0.05 if self._kill and worked.killed is None else 0.25
                time.sleep(max(pause, 5 * (now - began)))
            worked.seconds = display.seconds
        children.stop_workers()
        self._look_for_dead(worked)
        return worked

    def _kill_one(self) -> Killed | None:
        """Kills the worker with the most jobs in its hands; None if nobody has any just now."""
        held = held_jobs(self._place)
        busiest = max(
            (worker for worker in self._children.workers if worker.lives), key=lambda worker: held.get(worker.pid, 0)
        )
        if not held.get(busiest.pid):
            return None
        busiest.kill()
        # Counted again: now that it is dead, the number does not change any more.
        left = held_jobs(self._place).get(busiest.pid, 0)
        killed = Killed(busiest.name, busiest.pid, left, round(self._display.seconds, 2))
        successor = self._start_worker()
        self._display.tell(
            f"{busiest.name} was killed (SIGKILL) with {left} jobs in its hands; {successor.name} starts. "
            f"Others take these jobs when the lease of {LEASE} s has run out."
        )
        return killed

    def _look_for_takeover(self, killed: Killed) -> Killed:
        if killed.taken_over is not None or held_jobs(self._place).get(killed.process):
            return killed
        after = self._display.seconds - killed.after
        self._display.tell(f"The jobs of {killed.worker} were taken over, {after:.1f} s after its death.")
        return replace(killed, taken_over=round(after, 2))

    def _look_for_dead(self, worked: Worked) -> None:
        for worker in self._children.workers:
            if worker.killed or worker.lives or worker.name in self._reported:
                continue
            self._reported.add(worker.name)
            if worker.code != 0 or not worker.stopped:
                what = "did not stop well" if worker.stopped else "ended by itself"
                worked.problems.append(f"{worker.name} {what}, exit code {worker.code}:\n{worker.last_words()}")
                self._display.tell(worked.problems[-1])
