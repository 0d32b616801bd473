"""Posterior families and their linear algebra, nowhere else; the native kernels behind them."""

from bayestream.gaussians import dense, diagonal, dlr, kernels, last_layer, lazy_dlr, spherical
from bayestream.gaussians.dense import DenseGaussian
from bayestream.gaussians.diagonal import DiagonalGaussian
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.last_layer import LastLayerGaussian
from bayestream.gaussians.lazy_dlr import LazyDLR
from bayestream.gaussians.spherical import SphericalGaussian

__all__ = [
    "DLRGaussian",
    "DenseGaussian",
    "DiagonalGaussian",
    "LastLayerGaussian",
    "LazyDLR",
    "SphericalGaussian",
    "dense",
    "diagonal",
    "dlr",
    "kernels",
    "last_layer",
    "lazy_dlr",
    "spherical",
]
