"""Bayesian neural networks that learn from a stream, one example at a time.

Every public name is in the stub beside this file, and is imported when it is first asked for: the
command line is ready, and can be interrupted, before JAX is.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
