"""One of two processes that share a belief: how far its forecasts are from those alone."""

import sys

import jax
import numpy as np

import bayestream as bs


def main(address, process):
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, num_processes=2, process_id=int(process))
    given = bs.lofi, bs.models.mlp([5, 30, 3]), bs.likelihoods.categorical()
    settings = {"rank": 4, "decay": 0.999}
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    learner = bs.sharded(*given, mesh=mesh, **settings)
    alone = given[0](*given[1:], **settings)
    x = np.random.default_rng(0).normal(size=(200, 5))
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    with jax.default_device(jax.local_devices()[0]):
        told, said = (
            bs.run(each, each.init(jax.random.key(0)), (x, y), progress=False)[1]["prediction"]
            for each in (learner, alone)
        )
    print(jax.device_count(), float(np.max(np.abs(np.asarray(told) - np.asarray(said)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
