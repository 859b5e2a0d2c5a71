"""Outcomes that wait to be written: done jobs as byte maps over positions, all others as rows."""

from __future__ import annotations

from typing import Any

from smena._worker.claimed import ClaimedJob

# A map covers at most this many positions, and is cut where jobs lie further apart than a row of the map is worth.
_SPAN = 8_192
_GAP = 512


class DoneRange:
    """Done jobs of one lane and incarnation that lie close together."""

    __slots__ = ("hi", "incarnation", "jobs", "lane", "lo", "map", "results")

    def __init__(self, jobs: list[tuple[ClaimedJob, str | None]]) -> None:
        first = jobs[0][0]
        self.jobs = [job for job, _ in jobs]
        self.incarnation = first.claim.incarnation
        self.lane = first.claim.lane
        self.lo = lo = first.pos
        self.hi = jobs[-1][0].pos
        marks = bytearray(self.hi - lo + 1)
        results = []
        for job, result in jobs:
            marks[job.pos - lo] = 1
            if result is not None:
                results.append(f'"{job.pos - lo}":{result}')
        self.map = bytes(marks)
        self.results = "{" + ",".join(results) + "}" if results else None


class Results:
    """What the runners finished and the database does not know yet."""

    def __init__(self) -> None:
        self._done: list[tuple[ClaimedJob, str | None]] = []
        self._ordered: list[tuple[ClaimedJob, str | None]] = []
        self._settled: list[tuple[ClaimedJob, dict[str, Any]]] = []
        self._again: list[DoneRange] = []
        self._on_the_way: set[ClaimedJob] = set()

    def __len__(self) -> int:
        return len(self._done) + len(self._ordered) + len(self._settled) + sum(len(r.jobs) for r in self._again)

    def done(self, job: ClaimedJob, result: str | None) -> None:
        if job.rest is not None and job.rest["order_key"] is not None:
            self._ordered.append((job, result))
        else:
            self._done.append((job, result))

    def settle(self, job: ClaimedJob, row: dict[str, Any]) -> None:
        self._settled.append((job, row))

    def again(self, range: DoneRange) -> None:
        """Puts a range back whose statement did not come through."""
        self._again.append(range)

    @property
    def all_known(self) -> bool:
        """The database knows each outcome: none waits here, and none is on its way."""
        return len(self) == 0 and not self._on_the_way

    def known(self, job: ClaimedJob) -> None:
        """The database knows the outcome of this job."""
        self._on_the_way.discard(job)

    def jobs(self) -> list[ClaimedJob]:
        """The jobs whose outcomes the database may not know: those that wait here, and those that are on their way."""
        waiting = [job for job, _ in (*self._done, *self._ordered)] + [job for job, _ in self._settled]
        return [*waiting, *self._on_the_way]

    def take_done(self) -> list[DoneRange]:
        """All done jobs, as ranges; they are the caller's now."""
        ranges, self._again = self._again, []
        done, self._done = self._done, []
        if done:
            done.sort(key=_place)
            start = 0
            first = done[0][0]
            before = first.pos
            for n, (job, _) in enumerate(done):
                if (
                    job.claim.lane != first.claim.lane
                    or job.claim.incarnation != first.claim.incarnation
                    or job.pos - before > _GAP
                    or job.pos - first.pos >= _SPAN
                ):
                    ranges.append(DoneRange(done[start:n]))
                    start, first = n, job
                before = job.pos
            ranges.append(DoneRange(done[start:]))
            self._on_the_way.update(job for job, _ in done)
        return ranges

    def take_ordered(self) -> list[tuple[ClaimedJob, str | None]]:
        taken, self._ordered = self._ordered, []
        self._on_the_way.update(job for job, _ in taken)
        return taken

    def take_settled(self) -> list[tuple[ClaimedJob, dict[str, Any]]]:
        taken, self._settled = self._settled, []
        self._on_the_way.update(job for job, _ in taken)
        return taken


def _place(entry: tuple[ClaimedJob, str | None]) -> tuple[int, int, int]:
    job = entry[0]
    return job.claim.incarnation, job.claim.lane, job.pos
