"""Fused GPU kernels, written in Triton, for the few places where they pay; each has a plain twin in torch that says what it does.

A kernel is used for float32 on CUDA where Triton is installed (it comes with torch there); everything else takes the plain way, and
so does everything with `FOPNG_KERNELS=0` in the environment. Products are made of three TF32 products each ("tf32x3"), as exact as
float32 to a few units in the last place.
"""
