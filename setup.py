"""Build the native CPU kernels where there is a C++ compiler; all else is in pyproject.toml."""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("native")
COMMON = ["-std=c++17", "-O3", "-g0", "-fPIC", "-Wall", "-Wextra"]  # Python itself asks for -g
COMMON += os.environ.get("BAYESTREAM_CXXFLAGS", "").split()
VARIANTS = {
    "baseline": (16, []),
    "avx2": (32, ["-mavx2", "-mfma"]),
    "avx512": (64, ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"]),
}


class BuildKernels(build_ext):
    """One object per instruction set and precision; the library chooses when it is loaded."""

    def build_extension(self, ext: Extension) -> None:
        """Compile each variant with its own flags; without a compiler, do without kernels."""
        if os.environ.get("BAYESTREAM_KERNELS") == "jax":
            return
        try:
            import jax
        except ImportError:
            print("bayestream: no jax in the build environment; building without native kernels")
            return
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        try:
            bindings = sorted(map(str, NATIVE.glob("*_binding.cc")))
            kernels = sorted(map(str, NATIVE.glob("*_kernels.cc")))
            work = [(bindings, "", [], ["-isystem", jax.ffi.include_dir()])]
            for name, (width, flags) in VARIANTS.items():
                for real in ("float", "double"):
                    macros = [("REAL", real), ("VARIANT", name), ("VECTOR_BYTES", str(width))]
                    work.append((kernels, f"{name}_{real}", macros, flags if x86 else []))
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = [made for part in pool.map(self.compile_part, work) for made in part]
            target = self.get_ext_fullpath(ext.name)
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            self.compiler.link_shared_object(
                objects, target, target_lang="c++", extra_postargs=["-lpthread", *COMMON]
            )
        except Exception as error:  # any compiler, any complaint: the pure-JAX path serves
            if os.environ.get("BAYESTREAM_KERNELS") == "native":
                raise
            print(f"bayestream: building without native kernels: {error}", file=sys.stderr)

    def compile_part(self, part: tuple) -> list[str]:
        """Some sources with their own folder, macros and flags."""
        sources, folder, macros, flags = part
        return self.compiler.compile(
            sources,
            output_dir=str(Path(self.build_temp) / folder),
            macros=macros,
            extra_postargs=[*COMMON, *flags],
        )


setup(
    ext_modules=[Extension("bayestream._native", [], optional=True)],
    cmdclass={"build_ext": BuildKernels},
)
