# SPDX-License-Identifier: Apache-2.0
"""Builds the compiled parts of `hotstage-marks`: the Python extension and the library for C."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

LIBRARY_NAME = "libhotstage_marks"
INJECTION_NAME = "libhotstage_nvtx"
NATIVE = "hotstage_marks/native"
# The probe points are assembly without endbr64, so the objects must not claim to support branch tracking.
MACHINE_FLAGS = ["-fcf-protection=none"] if sysconfig.get_platform().endswith("x86_64") else []
# Without debug information, which names the folder of the build.
COMPILE = ["-O2", "-g0", "-fvisibility=hidden", *MACHINE_FLAGS]
# Calls stay inside the file that a watcher has attached to.
LINK = ["-Wl,-Bsymbolic"]
# The other two stand on the library, wherever the package lies: one copy of it in a process.
LINK_MARKS = ["-l:libhotstage_marks.so", "-Wl,-rpath,$ORIGIN"]
# One extension for every Python (abi3). 3.11 is the first whose headers call all that is used here stable;
# what they say it of (fast calls, buffers, UTF-8) has the same form in 3.9 and 3.10. Builds without a lock
# around the interpreter have no stable interface yet.
IS_STABLE = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
STABLE = {"define_macros": [("Py_LIMITED_API", "0x030b0000")], "py_limited_api": True} if IS_STABLE else {}
OLDEST_PYTHON = "cp39"

LIBRARY_SOURCES = ("points", "marks", "names", "batch", "embedding", "digest")
EXTENSION_SOURCES = ("module", "scope", "members", "vectors", "request", "arguments")
INJECTION = f"{NATIVE}/nvtx"
HEADERS = ["hotstage_marks/include/hotstage_marks.h", *(f"{NATIVE}/{name}.h" for name in ("core", "stack"))]
EXTENSION = f"{NATIVE}/python"
EXTENSION_HEADERS = [f"{EXTENSION}/{name}.h" for name in ("arguments", "request", "scope", "vectors")]


class BuildExtension(build_ext):
    """Gives the C libraries their plain names: they are nobody's Python modules."""

    def run(self) -> None:
        super().run()
        if self.inplace or getattr(self, "editable_mode", False):
            for older in Path("hotstage_marks").glob("_native.*.so"):  # would be found before a newer one
                if older.name != Path(self.get_ext_filename("hotstage_marks._native")).name:
                    older.unlink()

    def build_extensions(self) -> None:
        # Where the interpreter of the build has its libraries means nothing on another machine.
        linker = self.compiler.linker_so
        self.compiler.linker_so = [word for word in linker if not word.startswith("-Wl,-rpath")]
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        if "-l:libhotstage_marks.so" in ext.extra_link_args:  # built after it
            marks = Path(self.get_ext_fullpath(f"hotstage_marks.{LIBRARY_NAME}"))
            ext.library_dirs.append(str(marks.parent))
        super().build_extension(ext)

    def get_ext_filename(self, fullname: str) -> str:
        if fullname.endswith((LIBRARY_NAME, INJECTION_NAME)):  # called with and without the package
            return "/".join(fullname.split(".")) + ".so"
        return super().get_ext_filename(fullname)


setup(
    ext_modules=[
        Extension(
            f"hotstage_marks.{LIBRARY_NAME}",
            [f"{NATIVE}/{name}.c" for name in LIBRARY_SOURCES],
            depends=HEADERS,
            extra_compile_args=COMPILE,
            extra_link_args=[*LINK, "-Wl,-soname,libhotstage_marks.so"],
            optional=True,  # without a compiler the marks are no-ops, and say so in `is_native`
        ),
        Extension(
            "hotstage_marks._native",
            [f"{EXTENSION}/{name}.c" for name in EXTENSION_SOURCES],
            depends=[*HEADERS, *EXTENSION_HEADERS],
            extra_compile_args=[*COMPILE, "-fno-plt"],
            extra_link_args=[*LINK, *LINK_MARKS],
            optional=True,
            **STABLE,
        ),
        Extension(
            f"hotstage_marks.{INJECTION_NAME}",
            [f"{INJECTION}/{name}.c" for name in ("injection", "names", "ranges", "rules")],
            depends=[
                HEADERS[0],
                "hotstage_marks/nvtx_rules.txt",
                *(f"{INJECTION}/{name}.h" for name in ("abi", "names", "ranges", "rules")),
            ],
            # The assembler takes the table of rules in as it is.
            extra_compile_args=[*COMPILE, "-fno-plt", "-Wa,-Ihotstage_marks"],
            extra_link_args=[*LINK, "-Wl,-soname,libhotstage_nvtx.so", *LINK_MARKS],
            optional=True,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": OLDEST_PYTHON}} if IS_STABLE else {},
    cmdclass={"build_ext": BuildExtension},
)
