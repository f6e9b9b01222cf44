"""What the CPU kernels share: compiling, vector code, packed matrices, row primitives.

Imported only when the first numpy array reaches an op: everything here needs numba.
"""
