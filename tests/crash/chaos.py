"""`scripts/chaos`: the long form of the crash tests. Everything goes wrong at random moments; then the books balance.

Four worker processes work a queue with retries, delays, order keys, unique keys, long jobs and poison. At random
moments one or all of them are killed, paused beyond their lease, or stopped; their connections are terminated; the
server is restarted without a checkpoint. A supervisor replaces workers that ended. At the end the load stops, what is
there is worked off, and the tally compares what the store says with what the handlers did.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from psycopg import OperationalError

from crash.feeder import Feeder
from crash.fix_server import PrivateServer
from crash.fix_workers import HERE, LEASE, Process, Shop
from crash.tally import Tally

POISON_EVERY = 10  # kills
# How a worker may end: told to stop, perhaps before it could listen, killed, by its own handler, or because it was
# started while the server was away.
EXITS = (0, -signal.SIGTERM, -signal.SIGKILL, 9, 75)


class Chaos:
    """One run."""

    def __init__(self, server: PrivateServer, shop: Shop, feeder: Feeder, workers: int, chance: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._server = server
        self._shop = shop
        self._feeder = feeder
        self._wanted = workers
        self._chance = chance
        self._workers: list[Process] = []
        self._paused: dict[Process, float] = {}
        self._disturbances: list[tuple[int, Callable[[], None]]] = [
            (30, self._kill_one),
            (4, self._kill_all),
            (15, self._pause),
            (15, self._stop),
            (15, self._terminate_one),
            (6, self._terminate_all),
            (6, self._restart_server),
        ]

    def run(self, kills: int, seconds: float | None) -> None:
        """Disturbs until there were so many kills, or so much time has passed."""
        began = said = time.monotonic()
        poisoned = 0
        self._supervise()
        while self.done["kills"] < kills if seconds is None else time.monotonic() < began + seconds:
            time.sleep(self._chance.uniform(0.2, 1.5))  # a random moment of everything
            weights = [weight for weight, _ in self._disturbances]
            _, disturb = self._chance.choices(self._disturbances, weights)[0]
            disturb()
            self._supervise()
            if self.done["kills"] // POISON_EVERY > poisoned:
                poisoned += 1
                self._feeder.one("kills_its_worker")
            if time.monotonic() > said + 15:
                said = time.monotonic()
                print(f"{said - began:5.0f} s  {dict(self.done)}", flush=True)

    def settle(self, seconds: float) -> bool:
        """No more disturbances: works off what is left. False when it takes longer than that."""
        until = time.monotonic() + seconds
        open = "select count(*) from smena.jobs where state in ('ready', 'running', 'scheduled', 'blocked')"
        there = "select count(*) from smena.workers"
        while time.monotonic() < until:
            self._supervise(resume=True)
            with suppress(OperationalError):
                if self._shop.value(open) == 0 and self._shop.value(there) == self._wanted:
                    return True
            time.sleep(0.2)
        return False

    def leave(self) -> None:
        """Ends the shift in order."""
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        for worker in list(self._workers):
            self._ended(worker, worker.exit_code(60))

    def _supervise(self, *, resume: bool = False) -> None:
        now = time.monotonic()
        for worker, until in list(self._paused.items()):
            if resume or now >= until:
                worker.signal(signal.SIGCONT)
                del self._paused[worker]
        for worker in list(self._workers):
            if (code := worker.child.poll()) is not None:
                self._ended(worker, code)
        while len(self._workers) < self._wanted:
            self._workers.append(self._shop.worker("--concurrency", "5", "--grace", "2"))

    def _ended(self, worker: Process, code: int) -> None:
        self._workers.remove(worker)
        self._paused.pop(worker, None)
        if code not in EXITS:
            self.surprises.append(f"a worker ended with {code}: {worker.log}")
        if code == 9:
            self.done["deaths by poison"] += 1

    def _one(self) -> Process:
        return self._chance.choice(self._workers)

    def _kill(self, worker: Process) -> None:
        worker.kill()
        self.done["kills"] += 1

    def _kill_one(self) -> None:
        self._kill(self._one())

    def _kill_all(self) -> None:
        for worker in self._workers:
            self._kill(worker)
        self.done["of all at once"] += 1

    def _pause(self) -> None:
        worker = self._one()
        if worker not in self._paused:
            worker.signal(signal.SIGSTOP)
            self._paused[worker] = time.monotonic() + LEASE * self._chance.uniform(0.3, 2.5)
            self.done["pauses"] += 1

    def _stop(self) -> None:
        worker = self._one()
        worker.signal(signal.SIGTERM)
        if self._chance.random() < 0.3:
            worker.signal(signal.SIGTERM)
        self.done["stops"] += 1

    def _terminate(self, limit: str) -> None:
        with suppress(OperationalError):
            self._shop.query(
                "select pg_terminate_backend(pid) from (select pid from pg_stat_activity where datname ="
                f" current_database() and application_name in ('smena worker', 'smena lease') {limit}) a"
            )
            self.done["terminations"] += 1

    def _terminate_one(self) -> None:
        self._terminate("order by random() limit 1")

    def _terminate_all(self) -> None:
        self._terminate("")

    def _restart_server(self) -> None:
        self._server.crash(self._chance.choice([signal.SIGQUIT, signal.SIGKILL]))
        time.sleep(self._chance.choice([0, 0, LEASE * self._chance.uniform(0, 2)]))  # the length of the outage
        self._server.start()
        self.done["restarts"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, help="end after so many kills (50)")
    parser.add_argument("--minutes", type=float, help="end after so many minutes instead")
    parser.add_argument("--workers", type=int, default=4, help="worker processes at a time (4)")
    parser.add_argument("--seed", type=int, help="repeats the choices of a run, as far as time allows")
    given = parser.parse_args()
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it tells of each connection that the server ended
    seed = given.seed if given.seed is not None else random.randrange(1_000_000)
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="smena-chaos-"))
    print(f"seed {seed}, logs in {folder}", flush=True)
    server = PrivateServer()
    began = time.monotonic()
    try:
        server.make()
        server.start()
        shop = Shop(server.database("chaos"), folder)
        shop.make_effects()
        os.environ["SMENA_DSN"] = shop.dsn
        sys.path.insert(0, str(HERE))
        feeder = Feeder(shop, importlib.import_module("shop"), random.Random(seed + 1))
        feeder.start()
        chaos = Chaos(server, shop, feeder, given.workers, chance)
        try:
            chaos.run(given.kills, given.minutes * 60 if given.minutes else None)
            feeder.stop()
            settled = chaos.settle(300)
            chaos.leave()
            tally = Tally(shop, feeder, chaos.done, time.monotonic() - began)
            print(tally.table())
            wrong = [*chaos.surprises, *([] if settled else ["jobs are left that do not end"]), *tally.wrong()]
            if wrong:
                server.run("pg_dump", "-f", "chaos.sql", shop.dsn)
                shutil.copy(server.folder / "chaos.sql", folder)
        finally:
            feeder.stop()
            shop.close()
    finally:
        server.end()
    for line in wrong:
        print(f"WRONG: {line}")
    print("the books do not balance" if wrong else "the books balance")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
