"""The command line. `smena.cli:main` is the command `smena`."""

from smena.cli.root import main

__all__ = ["main"]
