"""Benchmarks, which need a checkout of the source."""

import os

os.environ.setdefault("WUKONGS_KERNELS", "compile")  # never interpreted ones, which time nothing of interest
