"""Storage types of packed matrices: block sizes of the GGUF format, and IQ2_XXS's grid.

Facts only; `reference` has the formulas, `repack` the layouts that kernels read.
"""

from __future__ import annotations

BLOCKS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q4_K": (256, 144),
    "IQ2_XXS": (256, 66),
    "MXFP4": (32, 17),
}
"""Elements and bytes of one block, by type."""

KINDS = tuple(BLOCKS)
"""Types that `pack` takes."""

UNITS = {"Q8_0": 32, "Q2_K": 256, "Q4_K": 256, "IQ2_XXS": 256, "MXFP4": 128}
"""Inputs that the kernels take at once, by type; a row must be whole units."""

PACKED_BITS = {"Q8_0": 8.5, "Q2_K": 3.125, "Q4_K": 4.625, "IQ2_XXS": 3.375, "MXFP4": 4.25}
"""Bits per weight of the planes that `repack` makes, by type; F16 and F32 keep theirs."""

GROUP = 16
"""Inputs of Q2_K that share a scale and a min."""

PANEL = 16
"""Rows of a quantised matrix that lie together, block by block."""

GRID = """
0000 0002 0005 0008 000a 0011 0014 0020 0022 0028 002a 0041 0044 0050 0058 0061
0064 0080 0082 008a 00a2 0101 0104 0110 0115 0140 0184 0198 0200 0202 0222 0282
0401 0404 0410 0421 0424 0440 0442 0448 0460 0481 0484 0490 04a4 0500 0502 0508
0520 0546 0569 0580 0591 0609 0610 0640 0684 06a4 0800 0805 0808 0814 0828 0841
0844 0850 0852 0888 0904 0940 0a02 0a14 1001 1004 1010 1021 1040 1060 1084 1090
1095 1100 1108 1120 1150 115a 1180 1224 1245 1400 1408 1420 1425 1449 1480 1518
1562 1600 1616 1801 1804 1810 1840 1881 1900 1905 19a0 1a51 2000 2002 200a 2044
2061 2080 2082 2129 2148 2200 2202 2401 2404 2410 2440 2456 2500 2541 2564 2690
2808 2820 2894 2a44 4001 4004 4010 4018 4021 4024 4040 4048 4056 4060 4081 4084
4090 4100 4120 4161 4180 4185 4201 4210 4248 4256 4268 4400 4408 4420 4480 4499
4512 4524 4600 4801 4804 4810 4840 4845 4900 4958 4961 4982 4a45 4a90 5000 5008
5011 5019 5020 5080 5088 5104 5142 51a4 5291 5490 5492 550a 5601 5654 5800 5811
5819 5864 5940 5a08 6004 6010 6040 6068 6100 6155 6218 6260 6400 6405 6510 6512
6584 6842 8000 8002 800a 8041 8082 8104 8118 8140 8211 8401 8404 8410 8415 8440
8460 8500 8546 8594 8609 8640 8660 8802 8904 8a11 9004 9010 9024 9040 90a1 9116
9180 9245 9400 9422 9444 9551 9881 9920 a002 a050 a085 a109 a200 a418 a850 a904
"""
"""IQ2_XXS: one code of 16 bits per entry; bits 2j, 2j + 1 choose element j of MAGNITUDES."""

MAGNITUDES = (8, 25, 43)
"""IQ2_XXS: what the codes 0, 1, 2 stand for."""


def grid_codes() -> list[int]:
    """The 256 codes of IQ2_XXS's grid, in index order."""
    return [int(code, 16) for code in GRID.split()]


def block_of(kind: str, inputs: int) -> int:
    """Inputs of a kernel's block: the largest that divides a row, within what its type allows."""
    if kind == "Q8_0":
        return next(size for size in (128, 64, 32) if inputs % size == 0)
    if kind in ("F16", "F32"):
        return next(size for size in (128, 64, 32, 16) if inputs % size == 0)
    return UNITS[kind]


def row_bytes(kind: str, inputs: int) -> int:
    """Bytes of a row as a GGUF file stores it.

    Raises:
        ValueError: for an unknown type or a row that is not whole blocks.
    """
    if kind not in BLOCKS:
        raise ValueError(f"type {kind!r} cannot be packed, expected one of {', '.join(KINDS)}")
    elements, size = BLOCKS[kind]
    if inputs <= 0 or inputs % elements:
        raise ValueError(f"{kind} needs rows in blocks of {elements}, found {inputs} inputs")
    return inputs // elements * size


def packed_bytes(kind: str, count: int, outputs: int, inputs: int) -> int:
    """Memory of a packed stack, about: rows are padded to whole panels, odd shapes become F32.

    Raises:
        ValueError: for an unknown type or a row that is not whole blocks.
    """
    size = row_bytes(kind, inputs)
    if kind in ("F32", "F16"):
        return count * outputs * size
    if kind == "BF16" or inputs % UNITS[kind]:
        return 4 * count * outputs * inputs
    return round(count * outputs * inputs * PACKED_BITS[kind] / 8)
