"""The demo's child processes: the provider and the workers. None outlives the demo, however the demo ends.

Each child has a pipe as its standard input, whose other end only the demo holds. When the demo is gone, for whatever
reason, the kernel closes it, and the child ends. Each is in a session of its own, so that Ctrl-C in the terminal is for
the demo alone, which then ends the workers before the provider that they call.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from smena.demo.faults import Faults
from smena.errors import SmenaError

LEDGER = "charges.jsonl"
CONCURRENCY = 20
# Short, so that a killed worker's jobs are taken over soon. The default is 30.
LEASE = 3

_PROVIDER = "smena.demo.provider"
_WORKER = "smena.demo.work"
_START = 30.0
_DRAIN = 10.0


@dataclass(slots=True)
class Child:
    """One process. `killed` and `stopped` say what the demo itself did to it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False
    stopped: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def kill(self) -> None:
        """As the kernel kills a process that takes too much memory: it learns nothing of it."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        """The end of its log, for a message."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return "\n".join(f"  {line}" for line in lines[-5:]) or "  (it said nothing)"


class Children:
    """Starts the processes in `folder`, where they leave their logs, and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[Child] = []
        self._provider: Child | None = None

    def start_provider(self, faults: Faults) -> str:
        """Starts the provider with its ledger in the folder, and returns its URL."""
        options = {
            "--ledger": self.folder / LEDGER,
            "--seed": faults.seed,
            "--latency": faults.latency,
            "--unavailable": faults.unavailable,
            "--dropped": faults.dropped,
        }
        given = [str(word) for option in options.items() for word in option]
        self._provider = provider = self._start("provider", _PROVIDER, [*given, "--until-eof"], {})
        assert provider.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(provider.process.stdout, selectors.EVENT_READ)
            line = provider.process.stdout.readline() if selector.select(_START) else b""
        if not line:
            raise SmenaError(f"the demo's provider did not start:\n{provider.last_words()}")
        return f"http://127.0.0.1:{int(line)}"

    def expect_provider(self) -> None:
        """Raises SmenaError when the provider has ended, because without it there is nothing more to show."""
        if self._provider is not None and not self._provider.lives:
            raise SmenaError(
                f"the demo's provider ended with exit code {self._provider.code}:\n{self._provider.last_words()}"
            )

    def start_worker(self, app: str, queue: str, environment: Mapping[str, str | None]) -> Child:
        """Starts `smena worker`. A variable that is None in `environment` is taken away from it."""
        name = f"worker {len(self.workers) + 1}"
        options = ["-A", app, "-q", queue, "--concurrency", str(CONCURRENCY), "--lease", str(LEASE), "--grace", "5"]
        worker = self._start(name, _WORKER, options, environment)
        self.workers.append(worker)
        return worker

    def stop_workers(self) -> None:
        """Lets them finish what they do, as a deploy does."""
        self._end(self.workers)

    def stop(self) -> None:
        """Ends all of them: the workers first, then the provider."""
        self.stop_workers()
        if self._provider is not None:
            self._end([self._provider])

    def _start(self, name: str, module: str, options: list[str], environment: Mapping[str, str | None]) -> Child:
        # The settings in the demo's environment, and a smena.toml where it was started, are for other apps than this.
        inherited = {key: value for key, value in os.environ.items() if not _is_setting(key)}
        if path := inherited.get("PYTHONPATH"):
            # They start in another folder.
            inherited["PYTHONPATH"] = os.pathsep.join(str(Path(part).absolute()) for part in path.split(os.pathsep))
        wanted = {**inherited, **environment}
        log = self.folder / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if module == _PROVIDER else output,
                stderr=output,
                env={key: value for key, value in wanted.items() if value is not None},
                cwd=self.folder,
                start_new_session=True,
            )
        return Child(name, process, log)

    def _end(self, children: list[Child]) -> None:
        living = [child for child in children if child.lives]
        for child in living:
            child.stopped = True
            child.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _DRAIN
        for child in living:
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        for child in children:
            for pipe in (child.process.stdin, child.process.stdout):
                if pipe is not None:
                    pipe.close()


def _is_setting(name: str) -> bool:
    return name.startswith("SMENA_") and name != "SMENA_DATA_DIR"
