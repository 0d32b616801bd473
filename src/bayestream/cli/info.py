"""`bayestream info`: what is installed here, what is used of it, and where things are kept."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
from rich.table import Table
from rich.text import Text

from bayestream.cli.cache import programs
from bayestream.cli.outputs import Json, Screen
from bayestream.gaussians import kernels
from bayestream.streams import datasets

_CORE = ("bayestream", "jax", "jaxlib", "numpy", "scipy", "optax")
# What each extra installs, and what cannot be done without it.
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "checkpoint": (("safetensors",), "checkpoints: to stop a run and go on"),
    "cli": (("rich", "typer"), "the bayestream command"),
    "data": (("pooch", "pyarrow", "tqdm"), "downloads, Parquet files"),
    "plot": (("matplotlib",), "pictures"),
    "ray": (("ray",), "fleets and trials on several machines: --ray"),
    "river": (("river",), "river's data sets, models for river"),
    "sklearn": (("scikit-learn",), "models for scikit-learn"),
    "tune": (("optuna",), "bayestream tune, bs.tune"),
}


def info(as_json: Json = False) -> None:
    """Versions, kernels, devices, extras, data sets and caches, for a look or for a bug report.

    **Examples:**

    `bayestream info`

    `bayestream info --json`
    """
    console = Screen(as_json)
    about = _gathered()
    for table in (_used(about), _extras(about["extras"]), _data_sets(about["data_sets"])):
        console.print(table)
    missing = sum(not extra["installed"] for extra in about["extras"].values())
    found = sum(folder is not None for folder in about["data_sets"].values())
    console.report(about, {"missing_extras": missing, "found_data_sets": found})


def _gathered() -> dict[str, Any]:
    kept = _folder(programs) or os.environ.get("JAX_COMPILATION_CACHE_DIR")
    folders = {
        "cache": _folder(datasets.cache),
        "programs": None if kept is None else Path(kept),
    }
    versions = {name: _version(name) for name in _CORE}
    return {
        "versions": {**versions, "python": platform.python_version()},
        "kernels": {"in_use": kernels.in_use(), "instruction_set": kernels.instruction_set()},
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "extras": {name: _extra(name) for name in EXTRAS},
        "data_sets": {name: _folder(partial(datasets.where, name)) for name in datasets.NAMES},
        "folders": {
            name: {"folder": folder, "bytes": _size(folder)} for name, folder in folders.items()
        },
    }


def _folder(find: Callable[[], Path | None]) -> Path | None:
    """None as well where this user has no home, as in some containers."""
    with suppress(RuntimeError):
        return find()
    return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _extra(name: str) -> dict[str, Any]:
    packages, purpose = EXTRAS[name]
    versions = {package: _version(package) for package in packages}
    return {
        "installed": None not in versions.values(),
        "packages": versions,
        "for": purpose,
        "install": f"pip install 'bayestream[{name}]'",
    }


def _size(folder: Path | None) -> int:
    """Of all files in it."""
    if folder is None:
        return 0
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _used(about: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    for name, found in about["versions"].items():
        table.add_row(name, found or "not installed")
    in_use, instructions = about["kernels"].values()
    if in_use == "native":
        said = f"native, {instructions}"
    elif instructions:
        said = "pure JAX; there are native ones"
    else:
        said = "pure JAX; native ones are built by pip install where there is a C++ compiler"
    table.add_row("kernels", said)
    table.add_row("devices", "\n".join(about["devices"]))
    for name, (folder, size) in ((n, f.values()) for n, f in about["folders"].items()):
        kept = f"{folder}, {size / 2**20:,.1f} MB" if folder else "not kept (BAYESTREAM_CACHE=off)"
        table.add_row(name, Text(kept))
    return table


def _extras(extras: dict[str, Any]) -> Table:
    table = Table("extra", "for", "packages")
    for name, extra in extras.items():
        have = ", ".join(f"{package} {found}" for package, found in extra["packages"].items())
        # Not markup: [plot] is no style.
        table.add_row(name, extra["for"], Text(have if extra["installed"] else extra["install"]))
    return table


def _data_sets(found: dict[str, Path | None]) -> Table:
    """By the folder that they are in: a dozen of them are in the same."""
    places: dict[str, list[str]] = {}
    for name, folder in found.items():
        above = None if folder is None else folder.parents[name.count("/")]
        places.setdefault(str(above or "bayestream data get NAME"), []).append(name)
    table = Table("data sets")
    table.add_column("where", overflow="fold")
    for place, names in places.items():
        table.add_row(", ".join(names), Text(place))
    return table
