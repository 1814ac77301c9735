"""Rows of a binding table as keys: what DISTINCT, GROUP BY, joins and the evaluation of expressions have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from store.dtypes import Int64Array
from wukongs.operator_kernels import number_rows


def key_matrix(columns: Sequence[Int64Array], length: int) -> npt.NDArray[np.int64]:
    """Copy columns into one int64[n_columns, length], as the kernels want them; there may be none."""
    return np.array(columns, dtype=np.int64).reshape(len(columns), length)


def numbered(columns: Sequence[Int64Array], length: int) -> tuple[Int64Array, Int64Array]:
    """Number distinct rows by first occurrence: (number of each row, first row of each number)."""
    numbers, firsts, _ = number_rows(key_matrix(columns, length))
    return numbers, firsts
