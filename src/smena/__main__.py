"""`python -m smena`: the command line."""

from smena.cli import main

main()
