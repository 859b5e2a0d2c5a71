"""The load of a chaos run: jobs of every sort, enqueued as fast as they are worked, through outages too."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from psycopg import OperationalError

from crash.fix_workers import LEASE, Shop
from smena.errors import DatabaseError

MOST_OPEN = 300


class Feeder:
    """A thread that enqueues. It remembers each job that the store accepted, which is what may never be lost."""

    def __init__(self, shop: Shop, module: Any, chance: random.Random) -> None:
        self.accepted: set[int] = set()
        self.refused = 0  # duplicates, by their unique keys
        self.unknown = 0  # enqueues whose answer was lost
        self.kinds: Counter[str] = Counter()
        self._shop = shop
        self._module = module
        self._chance = chance
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def one(self, kind: str, *arguments: Any) -> None:
        """One more job of a kind that is not part of the usual load."""
        self._store(kind, lambda: [getattr(self._module, kind).enqueue(*arguments)])

    def _feed(self) -> None:
        open = "select count(*) from smena.jobs where state in ('ready', 'running', 'blocked')"
        while not self._stop.wait(0.1):
            try:
                if self._shop.value(open) > MOST_OPEN:
                    continue
            except OperationalError:
                continue  # the server is away
            self._batch()

    def _batch(self) -> None:
        shop, chance = self._module, self._chance
        short = [(chance.uniform(0, 0.05),) for _ in range(20)]
        self._store("plain", lambda: shop.work.enqueue_many(short))
        self._store("in a thread", lambda: shop.work_in_thread.enqueue_many(short[:5]))
        self._store("failing once", lambda: shop.fails_first.enqueue_many(short[:5]))
        self._store("snoozing", lambda: [shop.comes_later.enqueue(0.5)])
        self._store("later", lambda: shop.work.using(run_in=chance.uniform(0.1, 5)).enqueue_many(short[:5]))
        self._store("in order", lambda: shop.ordered.enqueue_many([(f"key-{n % 9}", 0.01) for n in range(10)]))
        self._store("unique", lambda: [self._unique() for _ in range(10)])
        self._store("longer than a lease", lambda: [shop.long_at_first.enqueue(LEASE * chance.uniform(0.5, 2))])
        self._store("not to be repeated", lambda: [shop.must_not_repeat.enqueue(0.2)])

    def _unique(self) -> Any:
        return self._module.work.using(unique_key=f"u-{self._chance.randrange(30)}").enqueue(0.02)

    def _store(self, kind: str, enqueue: Callable[[], list[Any]]) -> None:
        try:
            answers = enqueue()
        except (OperationalError, DatabaseError):
            self.unknown += 1
            return
        made = [answer.id for answer in answers if answer.created]
        self.refused += len(answers) - len(made)
        self.accepted.update(made)
        self.kinds[kind] += len(made)
