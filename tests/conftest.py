"""How Triton runs in this process is decided here, before any test can import it.

Its functions are compiled or interpreted for as long as the process lives, its own library's by
what is set when it is first imported, and what imports it may be far from a kernel.
"""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
