"""What importing the kernels costs, and compiling all of them."""

from __future__ import annotations

import subprocess
import sys

import kernels


def test_importing_ops_loads_neither_compiler_nor_torch() -> None:
    ops = sorted({name.split(".")[0] for name in kernels.CPU_KERNELS} - {"cpu"})
    code = "; ".join(["import sys, kernels, kernels.mode", *(f"import kernels.{op}" for op in ops)])
    code += "; print([m for m in ('numba', 'llvmlite', 'torch', 'gguf') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_compile_all_reports_every_module_once() -> None:
    calls: list[tuple[int, int, str]] = []
    kernels.compile_all(lambda done, total, name: calls.append((done, total, name)))
    total = len(kernels.CPU_KERNELS)
    assert [c[0] for c in calls] == list(range(total + 1))
    assert {c[1] for c in calls} == {total}
    assert calls[-1][2] == ""
    assert all(c[2] for c in calls[:-1])
