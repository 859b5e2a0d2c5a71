"""What came of an action on many jobs. A refusal is counted and told; it never stops the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import psycopg

from smena.cli.screen import remark, say
from smena.cli.selection import Selection
from smena.errors import NotFound, Refused, RowMoved

_SHOWN = 20

_WORDS = {
    "requeued": "requeued",
    "cancelled": "cancelled",
    "requested": "running and asked to stop",
    "deleted": "deleted",
}


class Tally:
    """Counts the store's answers."""

    def __init__(self, verb: str, selection: Selection) -> None:
        self._verb = verb
        self._total = len(selection.ids)
        self._answers: Counter[str] = Counter()
        self._refused: list[tuple[int, str]] = []
        self._missing = list(selection.missing)
        self._reached = 0

    def note(self, id: int, act: Callable[[], str]) -> None:
        """Does it to one job and keeps the answer."""
        try:
            self._answers[act()] += 1
        except NotFound:
            self._missing.append(id)
        except Refused as error:
            # The store's functions name their own parameters.
            self._refused.append((id, str(error).replace("(new_key)", "(--new-key)")))
        except RowMoved:
            self._refused.append((id, f"job {id} is on the move: try again"))
        except psycopg.errors.LockNotAvailable:
            self._refused.append((id, f"job {id} is locked by another transaction: try again when it has ended"))
        self._reached += 1

    @property
    def exit_code(self) -> int:
        if self._refused:
            return 1
        return 3 if self._missing else 0

    def report(self) -> None:
        """Prints the counts, and why jobs were refused."""
        parts = [f"{count:,} {_WORDS.get(answer, answer)}" for answer, count in self._answers.items()]
        if self._refused:
            parts.append(f"{len(self._refused):,} refused")
        if self._missing:
            parts.append(f"{len(self._missing):,} not found")
        if self._reached < self._total:
            parts.append(f"{self._total - self._reached:,} not reached")
        say(", ".join(parts) or "nothing was changed")
        for _, reason in self._refused[:_SHOWN]:
            remark(f"  refused: {reason}")
        if len(self._refused) > _SHOWN:
            remark(f"  … and {len(self._refused) - _SHOWN:,} more")
        if self._missing:
            ids = ", ".join(map(str, self._missing[:_SHOWN]))
            remark(f"  not found: {ids}{' …' if len(self._missing) > _SHOWN else ''}")
