"""What the network's output means: p(y | η), in natural-parameter form, without jitter."""

from bayestream.likelihoods.adaptive import adaptive_gaussian, adaptive_student_t
from bayestream.likelihoods.adaptive_categorical import adaptive_categorical
from bayestream.likelihoods.bernoulli import bernoulli
from bayestream.likelihoods.categorical import categorical
from bayestream.likelihoods.evolving import evolving
from bayestream.likelihoods.gaussian import gaussian
from bayestream.likelihoods.log_density import from_log_density
from bayestream.likelihoods.one_seen import one_seen
from bayestream.likelihoods.poisson import poisson
from bayestream.likelihoods.slowed import slowed
from bayestream.likelihoods.student_t import student_t
from bayestream.likelihoods.tempered import tempered

__all__ = [
    "adaptive_categorical",
    "adaptive_gaussian",
    "adaptive_student_t",
    "bernoulli",
    "categorical",
    "evolving",
    "from_log_density",
    "gaussian",
    "one_seen",
    "poisson",
    "slowed",
    "student_t",
    "tempered",
]
