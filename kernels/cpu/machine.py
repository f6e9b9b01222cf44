"""What the machine's processor can do beyond float32 vectors.

A processor that numba is told about is not asked.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from numba.core import config

_FEATURES = {} if config.CPU_NAME or config.CPU_FEATURES else llvm.get_host_cpu_features()

HAS_DOT_BYTES = bool(_FEATURES.get("avx512vnni"))
"""Whether it adds products of integers in fours (of 8 bits) and in twos (of 16)."""

HAS_TABLES = HAS_DOT_BYTES and bool(_FEATURES.get("avx512vbmi"))
"""Whether it also looks up elements of a whole vector in a table of 16: 4-bit weights stay so."""
