"""Numerical building blocks that methods share: binning, rows in blocks, Gaussians, neighbours, batch kernels."""
