"""The demo's result, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from smena.demo.shift import Killed


@dataclass(frozen=True, slots=True)
class Report:
    """Everything counted after the work. The run is good when there are no `problems`.

    `kill`: whether a worker was to be killed. `kept`: where the ledger and the logs are, if they are still there.
    """

    input: Path
    purchases: int
    zero: int
    charged: int
    amount: Decimal
    refused: int
    jobs: int
    attempts: int
    calls: int
    unavailable: int
    dropped: int
    repeated: int
    suspects: int
    workers: int
    kill: bool
    killed: Killed | None
    seconds: float
    kept: Path | None
    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not self.problems

    def fields(self) -> dict[str, Any]:
        """For `--json`."""
        kept = None if self.kept is None else str(self.kept)
        return asdict(self) | {"input": str(self.input), "amount": str(self.amount), "kept": kept, "good": self.good}

    def lines(self) -> Iterator[str]:
        """For people."""
        rate = self.purchases / self.seconds if self.seconds else 0.0
        yield f"Worked {self.seconds:.1f} s: {self.jobs:,} jobs, {self.attempts:,} attempts, {rate:,.0f} jobs/s."
        yield (
            f"The provider answered {self.unavailable:,} calls with 503, and dropped its answer to {self.dropped:,} "
            f"charges that it had made. {self.repeated:,} calls came again under the same key and charged nothing."
        )
        if self.killed is not None:
            yield (
                f"{self.killed.worker} was killed after {self.killed.after:.1f} s. {self.suspects} jobs that it had "
                "claimed became suspects, since any of them might have killed it: each ran again alone in a worker."
            )
        elif self.kill:
            yield "No worker was killed: the work was over too soon."
        yield ""
        yield "The provider's ledger against the purchases:"
        right = self.purchases - self.zero
        yield _line(
            self.charged == right, f"{self.charged:,} of {right:,} were charged once each, {self.amount:,} in all"
        )
        yield _line(self.refused == self.zero, f"{self.refused:,} of {self.zero:,} of 0.00 ended in failed: VALIDATION")
        yield _line(self.good, "nothing else: none lost, none left, none charged twice")
        if self.good:
            yield "Executed at least once, charged once because the provider honours the key."
        for problem in self.problems:
            yield f"PROBLEM: {problem}"


def _line(good: bool, what: str) -> str:
    return f"  {'ok ' if good else 'NOT'}  {what}"
