"""Which jobs an action is for: found once, counted, and kept as they were found."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from smena._ops import listing
from smena._ops.listing import NEWEST, Filter, Found
from smena.cli.target import Target
from smena.jobs import JobState

_PAGE = 1_000


@dataclass(slots=True)
class Selection:
    """Ids in the order in which they are acted on, how many there are of each sort, and ids that no job has."""

    ids: array[int] = field(default_factory=lambda: array("q"))
    sorts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    missing: list[int] = field(default_factory=list)

    def add(self, jobs: Iterable[Found]) -> None:
        for job in jobs:
            self.ids.append(job.id)
            self.sorts[job.queue, job.state, job.task] += 1


def by_ids(target: Target, ids: Iterable[int]) -> Selection:
    """The jobs with these ids."""
    wanted = list(dict.fromkeys(ids))
    selection = Selection()
    for start in range(0, len(wanted), _PAGE):
        part = wanted[start : start + _PAGE]
        found = target.run(lambda part=part: listing.locate(part))  # type: ignore[misc]
        there = {job.id for job in found}
        selection.add(found)
        selection.missing += [id for id in part if id not in there]
    return selection


def by_filter(target: Target, filter: Filter, states: tuple[JobState, ...]) -> Selection:
    """All jobs that fit; `states` are meant where the filter names none."""
    if not filter.states:
        filter = replace(filter, states=states)
    selection = Selection()
    before = NEWEST
    while True:
        found = target.run(lambda before=before: listing.find(filter, limit=_PAGE, before=before))  # type: ignore[misc]
        selection.add(found)
        if len(found) < _PAGE:
            break
        before = found[-1].id
    # The oldest first: work that is made ready again keeps its order.
    selection.ids.reverse()
    return selection
