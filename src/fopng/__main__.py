"""`python -m fopng` is the command line."""

from fopng.cli import main

main()
