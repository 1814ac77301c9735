"""All tests."""

import os

os.environ.setdefault("WUKONGS_KERNELS", "compile")  # whatever was compiled before, tests run compiled kernels
