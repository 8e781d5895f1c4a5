"""Compiles each ``.pyx`` of `foliot_native` to a module of its own. What cannot be said in pyproject.toml stands here.

``FOLIOT_NATIVE_SANITIZE=1`` makes a build for fuzzing: it looks at every index and at every access to memory, and ends
the process at the first wrong one.
"""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

_SANITIZE = os.environ.get("FOLIOT_NATIVE_SANITIZE") == "1"
_HERE = Path(__file__).parent
_BUILD = "build/sanitized" if _SANITIZE else "build/release"

# No -march: a wheel runs on every processor of its architecture. No fused multiply-add, which arm64 has and x86-64 has
# not: both, and numpy, must round alike. No debugging symbols, which are most of a file.
_RELEASE = ["-O3", "-g0", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden"]
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
# Nothing optimised, so nothing optimised away: it compiles in a third of the time, and runs half as fast.
_UNOPTIMISED = ["-O0", "-g1", "-ffp-contract=off"]
# AddressSanitizer stops at an access by a null pointer or a wild one, so no pointer is looked at before it is used.
_SANITIZED = [*_UNOPTIMISED, *_SANITIZERS, "-fno-sanitize=null,pointer-overflow"]

# What all modules need of Cython's memory views is a module of its own in the build for fuzzing, which so is made in two
# thirds of the time. That is Cython's code and not ours, so no sanitizer looks at it. In a release each module has its
# own, and none needs another.
_SHARED = "foliot_native._shared" if _SANITIZE else None


def _module(source: Path, for_fuzzing: list[str] = _SANITIZED) -> Extension:
    return Extension(
        f"foliot_native.{source.stem}",
        [str(source.relative_to(_HERE))],
        extra_compile_args=for_fuzzing if _SANITIZE else _RELEASE,
        extra_link_args=_SANITIZERS if _SANITIZE else [],
    )


os.chdir(_HERE)
setup(
    ext_modules=cythonize(
        [
            *(_module(source) for source in sorted((_HERE / "foliot_native").glob("*.pyx"))),
            *([_module(_HERE / "foliot_native/_shared.c", _UNOPTIMISED)] if _SHARED else []),
        ],
        build_dir=_BUILD,
        shared_utility_qualified_name=_SHARED,
        force=_SANITIZE,
        compiler_directives={
            "language_level": 3,
            "boundscheck": _SANITIZE,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": _SANITIZE,
            "embedsignature": False,
        },
    ),
    options={"build": {"build_base": _BUILD}, "build_ext": {"force": _SANITIZE, "parallel": os.cpu_count()}},
)
