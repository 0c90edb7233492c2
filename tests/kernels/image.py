# SPDX-License-Identifier: Apache-2.0
"""The root of a guest that runs tests: an initramfs of this machine's own files, at their own places.

Python, the modules that the tests import, what is compiled, and the shared libraries that all of it needs.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.bpf.conftest import build_targets
from tests.bpf.request_server import build_server

from hotstage.probes.loader.bindings import find_bcc, find_headers

ROOT = Path(__file__).resolve().parents[2]
BASE = Path(sys.base_prefix)
SITE = Path(sysconfig.get_paths()["purelib"])
TARGETS = Path("/targets")
"""Where the guest has the compiled targets."""
MODULES = Path("/modules")
"""Where it has the modules that it loads, by number."""
LATE_MODULES = Path("/late-modules")
"""Where it has those that its tests load."""
_HEADERS = ("include", "arch/x86/include")
_OF_THE_REPOSITORY = ("agent", "tests", "bpf", "pyproject.toml")
_NEVER = re.compile(
    r"/(__pycache__|test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|config-3[^/]*)$|\.(a|pyc|html)$"
)
_EXTRA_PACKAGES = ("pytest", "pytest_timeout", "iniconfig", "pluggy", "packaging", "pygments")
_SECONDS = 120

INIT = """\
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mount -t tracefs tracefs /sys/kernel/tracing
/bin/busybox mount -t bpf bpf /sys/fs/bpf
/bin/busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
for module in {modules}/*.ko; do
    [ ! -f "$module" ] || /bin/busybox insmod "$module"
done
/bin/busybox ip link set lo up
exec >/dev/ttyS1 2>&1
cd {root}
export PATH=/bin PYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1
export HOTSTAGE_TEST_TARGETS={targets} PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
{python} -m tests.kernels.guest {tests}
/bin/busybox sync
/bin/busybox poweroff -f
"""


def make(
    archive: Path,
    scratch: Path,
    tests: Sequence[str],
    modules: Sequence[tuple[str, bytes]] = (),
    *,
    late: Sequence[tuple[str, bytes]] = (),
    has_bcc: bool = False,
) -> None:
    """Write the initramfs. `scratch` is for what is made on the way; the tests are paths below `tests`, the
    modules are loaded in their order, `late` ones by the tests themselves. `has_bcc`: with bcc, LLVM
    and this machine's kernel headers.
    """
    extra = scratch / "extra"
    targets = extra / TARGETS.relative_to("/")
    for folder in ("bin", "proc", "sys", "dev", "tmp", "run", "var/tmp", targets.relative_to(extra)):
        (extra / folder).mkdir(parents=True, exist_ok=True)
    build_server(build_targets(targets), targets)
    _put(Path("/bin/busybox"), extra / "bin/busybox")
    for tool in ("sh", "mount", "umount", "true", "sleep", "cat"):
        (extra / "bin" / tool).symlink_to("busybox")
    for place, those in ((MODULES, modules), (LATE_MODULES, late)):
        for number, (name, module) in enumerate(those):
            (extra / place.relative_to("/")).mkdir(exist_ok=True)
            (extra / place.relative_to("/") / f"{number:02}-{name}.ko").write_bytes(module)
    _init(extra / "init", tests)
    found = _files(tests) | (_bcc() if has_bcc else set())
    files = sorted(_with_parents(found | set(_libraries([path for path in found if _is_elf(path)]))))
    with archive.open("wb") as out:
        _cpio(Path("/"), files, out.fileno())
        _cpio(extra, sorted(path.relative_to(extra) for path in extra.rglob("*")), out.fileno())


def _init(path: Path, tests: Sequence[str]) -> None:
    places = (SITE, ROOT / "agent", ROOT / "dashboards", ROOT, ROOT / "tests")
    path.write_text(
        INIT.format(
            root=ROOT,
            path=":".join(map(str, places)),
            targets=TARGETS,
            modules=MODULES,
            python=BASE / "bin" / f"python3.{sys.version_info.minor}",
            tests=" ".join(tests),
        ),
        encoding="utf-8",
    )
    path.chmod(0o755)


def _files(tests: Sequence[str]) -> set[Path]:
    """Everything at its own place that the guest needs."""
    found = set(_below(BASE / "lib" / f"python3.{sys.version_info.minor}", without="site-packages"))
    found.add(BASE / "bin" / f"python3.{sys.version_info.minor}")
    for name in _OF_THE_REPOSITORY:
        found.update(_below(ROOT / name))
    for name in {*_imported(tests), *_EXTRA_PACKAGES}:
        for place in (SITE / name, SITE / f"{name}.libs", SITE / f"{name}.py"):
            found.update(_below(place))
    found.update(path for each in SITE.glob("pytest*.dist-info") for path in _below(each))
    return found


def _bcc() -> set[Path]:
    """The distribution's bcc, its library, and headers of some kernel: they suffice for these programs."""
    bindings, headers = find_bcc(), find_headers()
    assert bindings.package and headers and headers.build and headers.source, (
        "bcc and kernel headers are needed"
    )
    libraries = {next(Path("/usr/lib").glob(f"*/{name}")) for name in ("libbcc.so.0", "librt.so.1")}
    folders = (bindings.package, headers.build, *(headers.source / name for name in _HEADERS))
    found = {path for folder in folders for path in _below(folder)}
    return found | {
        *libraries,
        Path("/lib/modules") / headers.release / "build",
        Path("/lib/modules") / headers.release / "source",
    }


def _below(place: Path, without: str = "") -> Iterator[Path]:
    if place.is_file():
        yield place
    for folder, folders, names in os.walk(place):
        is_ours = Path(folder).is_relative_to(ROOT) and not Path(folder).is_relative_to(SITE)
        skipped = ("__pycache__", without) if is_ours or Path(folder).is_relative_to(SITE) else (without,)
        folders[:] = [
            name for name in folders if name not in skipped and (is_ours or not _NEVER.search(f"/{name}"))
        ]
        yield from (Path(folder, name) for name in names if not _NEVER.search(name))


def _imported(tests: Sequence[str]) -> list[str]:
    """Top-level packages of the virtual environment that the tests import when they are collected."""
    program = (
        "import json, pathlib, sys, pytest, io, contextlib\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    code = pytest.main(['--collect-only', '-q', *sys.argv[1:]])\n"
        "files = [m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)]\n"
        "print(json.dumps([int(code), files]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *tests],
        cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    code, files = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, f"the tests cannot be collected: {done.stderr[-2000:]}"
    inside = (Path(name).relative_to(SITE) for name in files if Path(name).is_relative_to(SITE))
    return sorted({path.parts[0].removesuffix(".py") for path in inside})


def _is_elf(path: Path) -> bool:
    if not stat.S_ISREG(path.stat().st_mode) or path.suffix in (".py", ".o"):
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """What ldd says that they are linked with, and libbpf, which is opened by name."""
    bpf = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"libbpf\.so\.1 .*=> (\S+)", bpf)
    assert found, "libbpf.so.1 is not installed"
    for program in [*programs, Path(found[0])]:
        told = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=_SECONDS, check=False)
        yield from (Path(name) for name in re.findall(r"(/\S+) \(0x", told.stdout))
    yield Path(found[0])


def _with_parents(paths: Iterable[Path]) -> set[Path]:
    """The paths without symbolic links, every folder above them, and the links; relative to `/`."""
    done: set[Path] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        walked = Path("/")
        for index, part in enumerate(path.parts[1:], start=2):
            walked /= part
            done.add(walked.relative_to("/"))
            if walked.is_symlink():
                behind = Path(os.path.normpath(walked.parent / walked.readlink()))
                waiting.append(behind.joinpath(*path.parts[index:]))
                break
    return done


def _put(source: Path, place: Path) -> None:
    place.write_bytes(source.read_bytes())
    place.chmod(0o755)


def _cpio(base: Path, files: Sequence[Path], out: int) -> None:
    names = b"\0".join(os.fsencode(path) for path in files)
    subprocess.run(
        ["cpio", "--create", "--format=newc", "--null", "--quiet", "--owner=0:0"],
        cwd=base, input=names, stdout=out, check=True, timeout=_SECONDS,
    )  # fmt: skip
