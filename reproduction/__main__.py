"""`python -m reproduction`: its commands."""

import sys

from fopng.cli.errors import exit_code
from reproduction.commands import app

sys.exit(exit_code(app))
