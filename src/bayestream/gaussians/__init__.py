"""Posterior families and their linear algebra."""

from bayestream.gaussians import dense, diagonal, dlr, spherical
from bayestream.gaussians.dense import DenseGaussian
from bayestream.gaussians.diagonal import DiagonalGaussian
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.spherical import SphericalGaussian

__all__ = [
    "DLRGaussian",
    "DenseGaussian",
    "DiagonalGaussian",
    "SphericalGaussian",
    "dense",
    "diagonal",
    "dlr",
    "spherical",
]
