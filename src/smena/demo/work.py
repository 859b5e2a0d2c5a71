"""`smena worker`, which also drains when its standard input closes, as it does when the demo that started it is killed.

    python -m smena.demo.work -A smena.demo.shop:app -q payments

takes the options of `smena worker`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def main() -> None:
    """`smena worker`, with the options that were given."""
    threading.Thread(target=_wait_for_eof, daemon=True).start()
    from smena.cli import main as smena

    smena(["worker", *sys.argv[1:]])


def _wait_for_eof() -> None:
    # os.read, not sys.stdin: a daemon thread inside a buffered read aborts the interpreter when it ends.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
