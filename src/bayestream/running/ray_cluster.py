"""The Ray cluster that work is spread over: a connection to it, or a sentence saying why not."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import jax

_PATIENCE = 5.0  # seconds to wait for an answer
# What gRPC, which Ray speaks, begins with: HTTP/2's greeting and an empty frame of settings.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
# Read when Ray is imported, or begins a cluster.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it would report to its makers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # it would warn of what becomes of GPUs
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of answers that are not needed any more
    # Of actors that are made again.
    "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed|has been marked dead",
}
# Settings of JAX that decide about numbers, however they were made here.
_NUMBERS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_x64",
    "jax_threefry_partitionable",
)

_USERS: list[object] = []  # of a connection that was made here, which ends with the last of them


def library() -> Any:
    """Ray, or an error that says how to install it."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ImportError:
        raise ImportError(
            "Spreading work over a cluster needs ray: pip install 'bayestream[ray]'"
        ) from None


@contextmanager
def connected(address: str | None = None) -> Generator[Any, None, None]:
    """Ray, connected to a cluster; a connection that there was before is used, and stays.

    Args:
        address: of the cluster's head, HOST:PORT; "auto" for the cluster that this machine is part
            of; "local" to begin one here. Unless given, the one this process is connected to, or
            else as "auto".
    """
    ray = library()
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", "local", here):
            raise ValueError(
                f"address must be {here}, which this process is connected to, or left out, "
                f"got {address!r}."
            )
        if not _USERS:
            yield ray
            return
    else:
        _connect(ray, "auto" if address is None else address)
    user = object()
    _USERS.append(user)
    try:
        yield ray
    finally:
        _USERS.remove(user)
        if not _USERS:
            ray.shutdown()


def options() -> dict[str, Any]:
    """For actors and tasks: spread over the machines, and computing as this process does."""
    names = ("PYTHONPATH", "XLA_FLAGS")
    env = {
        name: value
        for name, value in os.environ.items()
        if name in names or name.startswith(("BAYESTREAM_", "JAX_"))
    }
    for name in _NUMBERS:
        value = getattr(jax.config, name)
        if value is not None:
            env[name.upper()] = str(value)
    return {"runtime_env": {"env_vars": env}, "scheduling_strategy": "SPREAD"}


def reason(error: BaseException) -> str:
    """The last line of what Ray says of an error, which is the error itself."""
    said = str(error).strip() or type(error).__name__
    return said.splitlines()[-1].strip().rstrip(".")


def _connect(ray: Any, address: str) -> None:
    known = _of_this_machine() if address == "auto" else None if address == "local" else address
    if known is not None:
        _check_answers(known)
    # Ray has a handler of its own for SIGTERM, which ends the process on the spot.
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    chosen = {"include_dashboard": False} if address == "local" else {}
    try:
        with warnings.catch_warnings():
            # Of a fork, which comes to nothing: another program is started at once.
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **chosen)
    except (OSError, RuntimeError, ValueError) as error:
        if address == "auto" and isinstance(error, ConnectionError):
            raise ConnectionError(
                "No Ray cluster runs on this machine: begin one with `ray start --head`, or give "
                "the address of its head, HOST:PORT."
            ) from None
        raise ConnectionError(f"No Ray cluster at {address!r}: {reason(error)}.") from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, handler)


def _of_this_machine() -> str | None:
    """Where Ray would look for "auto": the cluster may have ended since it was written down."""
    written = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    known = os.environ.get("RAY_ADDRESS", "")
    with suppress(OSError):
        known = known or written.read_text("utf-8").strip()
    return known if known not in ("", "auto", "local") else None


def _check_answers(address: str) -> None:
    """Ray itself would try for two minutes, and then end the process."""
    host, separator, port = address.rpartition(":")
    if not separator or "/" in host or not port.isdigit():
        raise ValueError(
            f"The address of a Ray cluster must be HOST:PORT, auto or local, got {address!r}."
        )
    answer = b""
    with (
        suppress(OSError, UnicodeError),
        socket.create_connection((host, int(port)), _PATIENCE) as wire,
    ):
        wire.sendall(_GREETING)
        answer = wire.recv(9)
    if answer[3:4] != b"\x04":  # a frame of settings, in return
        raise ConnectionError(
            f"No Ray cluster answers at {address}: begin one there with `ray start --head`, "
            "or give another address."
        )
