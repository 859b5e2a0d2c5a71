"""The whole demo, from an empty place to the comparison of what was charged with what was sold."""

from __future__ import annotations

import shutil
import signal
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from smena.demo import shop
from smena.demo.balance import compare
from smena.demo.books import read_books
from smena.demo.children import CONCURRENCY, LEASE, Child, Children
from smena.demo.display import Display
from smena.demo.faults import Faults
from smena.demo.place import SHOP, Place, fresh_place
from smena.demo.purchases import Purchase, count_zero_amounts, read_purchases
from smena.demo.report import Report
from smena.demo.sales import BATCH, read_sales, read_totals, sell
from smena.demo.shift import Shift, Worked
from smena.errors import ConfigurationError

_APP = "smena.demo.shop:app"
_QUEUE = shop.charge.options.queue
_FAULTS = Faults(unavailable=0.05, dropped=0.02, latency=0.02)


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What is to be shown. `dsn` None: on the embedded server. `keep`: leave everything for a look at it."""

    dsn: str | None
    input: Path
    workers: int = 3
    kill: bool = True
    keep: bool = False

    def run(self, console: Console) -> Report:
        """Runs it all. However it ends, no process runs on, and no data is left unless it is to be kept.

        The provider's ledger and the logs are also kept when something was wrong.
        """
        purchases = list(read_purchases(self.input))
        if not purchases:
            raise ConfigurationError(f"there are no purchases in {self.input}")
        folder = Path(tempfile.mkdtemp(prefix="smena-demo-"))
        with ExitStack() as to_delete:
            to_delete.callback(shutil.rmtree, folder, ignore_errors=True)
            report = self._run(console, folder, purchases)
            if self.keep or not report.good:
                to_delete.pop_all()
                console.print(f"The ledger and the logs are in {folder}")
        return report

    def _run(self, console: Console, folder: Path, purchases: list[Purchase]) -> Report:
        with ExitStack() as stack:
            place = stack.enter_context(fresh_place(self.dsn, shop.app.database.schema, keep=self.keep))
            children = Children(folder)
            stack.callback(children.stop)
            # Entered last, so done first: a second Ctrl-C does not stop the tidying up.
            stack.callback(_ignore_signals)
            console.print(f"{place.described}, schemas {place.store} and {SHOP}")
            url = children.start_provider(_FAULTS)
            console.print(
                f"The provider at {url} answers {_FAULTS.unavailable:.0%} of the calls with 503, "
                f"and charges {_FAULTS.dropped:.0%} without an answer."
            )
            worked = self._work(console, place, children, purchases, url)
            report = self._reported(place, folder, purchases, url, worked)
            for line in report.lines():
                console.print(line)
            if self.keep:
                console.print(f"Look at the jobs with `smena job list --schema {place.store} --state failed`.")
            return report

    def _work(self, console: Console, place: Place, children: Children, purchases: list[Purchase], url: str) -> Worked:
        display = Display(console, len(purchases))
        sell(place, purchases, shop.charge)
        console.print(
            f"Sold {len(purchases):,} purchases from {self.input.name} in {display.seconds:.1f} s, each in one "
            f"transaction with the job that will charge it ({BATCH} purchases a transaction)."
        )
        console.print(
            f"{self.workers} × smena worker -A {_APP} -q {_QUEUE} --concurrency {CONCURRENCY} --lease {LEASE}\n"
            f"(The default lease is 30 s. With {LEASE} s the jobs of a killed worker are taken over sooner.)\n"
            f"The handler that they run is `charge` in {shop.__file__}"
        )

        def start_worker() -> Child:
            return children.start_worker(_APP, _QUEUE, {"SMENA_DSN": place.dsn, "PROVIDER_URL": url})

        shift = Shift(place, children, display, start_worker, kill=self.kill)
        return shift.work(len(purchases), self.workers)

    def _reported(self, place: Place, folder: Path, purchases: list[Purchase], url: str, worked: Worked) -> Report:
        books, totals = read_books(url), read_totals(place)
        balance = compare(purchases, read_sales(place), totals.jobs, books.ledger)
        problems = (*worked.problems, *balance.problems)
        return Report(
            input=self.input,
            purchases=len(purchases),
            zero=count_zero_amounts(purchases),
            charged=balance.charged,
            amount=balance.amount,
            refused=balance.refused,
            jobs=totals.jobs,
            attempts=totals.attempts,
            calls=books.calls,
            unavailable=books.unavailable,
            dropped=books.dropped,
            repeated=books.repeated,
            suspects=totals.suspects,
            workers=self.workers,
            kill=self.kill,
            killed=worked.killed,
            seconds=round(worked.seconds, 2),
            kept=folder if self.keep or problems else None,
            problems=problems,
        )


def _ignore_signals() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, signal.SIG_IGN)
