# SPDX-License-Identifier: Apache-2.0
"""Where the real bcc is and which kernel headers it can use. Looks at files only; never imports bcc.

PyPI's `bcc` is another project: the bindings come from the distribution, outside the virtual environment.
They are told apart by what they contain, not by their name.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

INSTALL_BCC = "apt install python3-bpfcc (Debian, Ubuntu) or python3-bcc (Fedora); not `pip install bcc`"
INSTALL_LIBRARIES = "apt install libbpf1 libbpfcc (Debian, Ubuntu) or libbpf bcc (Fedora): bcc needs both"
INSTALL_HEADERS = "apt install linux-headers-amd64 (arm64: linux-headers-arm64), or CONFIG_IKHEADERS"

_PARTS_OF_BCC = ("__init__.py", "libbcc.py", "table.py")
_VERSION = re.compile(r"""__version__\s*=\s*['"]([\w.+~-]+)['"]""")


@dataclass(frozen=True, slots=True)
class BccBindings:
    """`package` is the folder of the real `bcc` (None: absent); `impostors` are other projects of that
    name.
    """

    package: Path | None
    version: str | None
    impostors: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class KernelHeaders:
    """`build` and `source` trees for bcc; both None when the kernel itself carries its headers.

    `is_exact`: they are this kernel's own. Others do for programs that read no kernel structure, which is all
    that is compiled here.
    """

    build: Path | None
    source: Path | None
    release: str
    is_exact: bool


def find_bcc(search: Sequence[Path] | None = None) -> BccBindings:
    """Look through `search`; by default the interpreter's own path, then the distribution's places."""
    real: Path | None = None
    impostors: list[Path] = []
    for folder in dict.fromkeys(_search_path() if search is None else search):
        package = folder / "bcc"
        if (package / "__init__.py").is_file():
            if all((package / part).is_file() for part in _PARTS_OF_BCC):
                real = real or package
            else:
                impostors.append(package)
        elif (folder / "bcc.py").is_file():
            impostors.append(folder / "bcc.py")
    return BccBindings(real, _version(real) if real else None, tuple(impostors))


def find_headers(root: Path = Path("/"), release: str | None = None) -> KernelHeaders | None:
    """This kernel's headers, else the newest others; None when there are none at all."""
    release = release or platform.release()
    modules = root / "lib" / "modules"
    if (modules / release / "build").exists():
        return _tree(modules / release, is_exact=True)
    if (root / "sys" / "kernel" / "kheaders.tar.xz").exists():
        return KernelHeaders(None, None, release, is_exact=True)
    others = [folder for folder in _folders(modules) if (folder / "build" / "include").exists()]
    newest = max(others, key=lambda folder: _version_key(folder.name), default=None)
    return _tree(newest, is_exact=False) if newest else None


def _tree(folder: Path, *, is_exact: bool) -> KernelHeaders:
    source = folder / "source" if (folder / "source").exists() else folder / "build"
    return KernelHeaders((folder / "build").resolve(), source.resolve(), folder.name, is_exact)


def _search_path() -> list[Path]:
    usual = [Path("/usr/lib/python3/dist-packages")]
    for lib in ("/usr/lib", "/usr/lib64"):
        usual.extend(sorted(Path(lib).glob("python3*/site-packages"), reverse=True))
    return [Path(entry) for entry in sys.path if entry] + usual


def _version(package: Path) -> str | None:
    try:
        match = _VERSION.search((package / "version.py").read_text("utf-8", "replace"))
    except OSError:
        return None
    return match[1] if match else None


def _folders(parent: Path) -> Iterable[Path]:
    return sorted(parent.iterdir()) if parent.is_dir() else ()


def _version_key(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]
