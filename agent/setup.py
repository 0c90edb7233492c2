# SPDX-License-Identifier: Apache-2.0
"""Builds the compiled parts of `hotstage-marks`: the Python extension and the library for C."""

from __future__ import annotations

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

LIBRARY_NAME = "libhotstage_marks"
INJECTION_NAME = "libhotstage_nvtx"
# The probe points are assembly without endbr64, so the objects must not claim to support branch tracking.
MACHINE_FLAGS = ["-fcf-protection=none"] if platform.machine() in ("x86_64", "AMD64") else []
# Without debug information, which names the folder of the build.
COMPILE = ["-O2", "-g0", "-fvisibility=hidden", *MACHINE_FLAGS]
# Calls stay inside the file that a watcher has attached to.
LINK = ["-Wl,-Bsymbolic"]
SOURCES = ("module", "request", "arguments", "digest", "marks")
HEADERS = [
    "hotstage_marks/include/hotstage_marks.h",
    "hotstage_marks/native/core.h",
    "hotstage_marks/native/arguments.h",
    "hotstage_marks/native/request.h",
]
INJECTION = "hotstage_marks/native/nvtx"


class BuildExtension(build_ext):
    """Gives the C libraries their plain names: they are nobody's Python modules."""

    def build_extensions(self) -> None:
        # Where the interpreter of the build has its libraries means nothing on another machine.
        linker = self.compiler.linker_so
        self.compiler.linker_so = [word for word in linker if not word.startswith("-Wl,-rpath")]
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        if ext.name.endswith(INJECTION_NAME):  # built after the marks, and linked with them
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
            "hotstage_marks._native",
            [f"hotstage_marks/native/{name}.c" for name in SOURCES],
            depends=HEADERS,
            extra_compile_args=COMPILE,
            extra_link_args=LINK,
            optional=True,  # without a compiler the marks are no-ops, and say so in `is_native`
        ),
        Extension(
            f"hotstage_marks.{LIBRARY_NAME}",
            ["hotstage_marks/native/marks.c", "hotstage_marks/native/digest.c"],
            depends=HEADERS[:2],
            extra_compile_args=COMPILE,
            extra_link_args=[*LINK, "-Wl,-soname,libhotstage_marks.so"],
            optional=True,
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
            extra_link_args=[
                *LINK,
                "-Wl,-soname,libhotstage_nvtx.so",
                "-l:libhotstage_marks.so",
                "-Wl,-rpath,$ORIGIN",
            ],
            optional=True,
        ),
    ],
    cmdclass={"build_ext": BuildExtension},
)
