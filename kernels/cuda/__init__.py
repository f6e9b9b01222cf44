"""What the Triton kernels of all ops share: row primitives, scratch memory, products by mode."""
