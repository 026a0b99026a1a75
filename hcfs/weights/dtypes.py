"""The element types of the safetensors format, and what the frameworks call them.

Source: `Dtype` in safetensors/src/tensor.rs of safetensors 0.8; names in a file are these keys.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """One element type."""

    bits: int
    """Size of an element. Elements of fewer than 8 bits are packed, and a tensor of them fills whole bytes."""
    torch: str | None
    """Its name in torch; None where there is none."""
    numpy: str | None
    """Its name in numpy, or in ml_dtypes; None where there is none."""


DTYPES = {
    "BOOL": DType(8, "bool", "bool"),
    # torch's type holds two elements, so the last dimension is half as long there.
    "F4": DType(4, "float4_e2m1fn_x2", None),
    "F6_E2M3": DType(6, None, None),
    "F6_E3M2": DType(6, None, None),
    "U8": DType(8, "uint8", "uint8"),
    "I8": DType(8, "int8", "int8"),
    "F8_E5M2": DType(8, "float8_e5m2", "float8_e5m2"),
    "F8_E4M3": DType(8, "float8_e4m3fn", "float8_e4m3fn"),
    "F8_E8M0": DType(8, "float8_e8m0fnu", "float8_e8m0fnu"),
    "F8_E4M3FNUZ": DType(8, "float8_e4m3fnuz", "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": DType(8, "float8_e5m2fnuz", "float8_e5m2fnuz"),
    "I16": DType(16, "int16", "int16"),
    "U16": DType(16, "uint16", "uint16"),
    "F16": DType(16, "float16", "float16"),
    "BF16": DType(16, "bfloat16", "bfloat16"),
    "I32": DType(32, "int32", "int32"),
    "U32": DType(32, "uint32", "uint32"),
    "F32": DType(32, "float32", "float32"),
    "C64": DType(64, "complex64", "complex64"),
    "F64": DType(64, "float64", "float64"),
    "I64": DType(64, "int64", "int64"),
    "U64": DType(64, "uint64", "uint64"),
}
