"""`python -m wukongs`: the command line, where the script `wukongs` is not on the path."""

import sys

from wukongs.cli import main

sys.exit(main())
