"""Compare packed vectors, with numpy."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from service.ports.services import Vector

#: In place of a length of 0.
_TINY: Final = 1e-9


def compare_vectors(question: Vector, rows: Sequence[bytes]) -> list[float]:
    """Return the cosine of a question and each row."""
    matrix = np.frombuffer(b"".join(rows), "<f2").reshape(len(rows), -1).astype(np.float32)
    asked = np.asarray(question, np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix)) * np.linalg.norm(asked)
    # by einsum as well: a product of BLAS would take several cores for what takes milliseconds
    products = np.einsum("ij,j->i", matrix, asked)
    cosines: list[float] = (products / np.maximum(lengths, _TINY)).tolist()
    return cosines
