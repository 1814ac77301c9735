"""Benchmarks. Those of `wukongs bench` also run from an installed package."""

import os

os.environ.setdefault("WUKONGS_KERNELS", "compile")  # never interpreted ones, which time nothing of interest
