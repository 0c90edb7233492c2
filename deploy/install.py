#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs hotstage as a service, and takes it away again: what `make install` and `make uninstall` call.

    install     a virtual environment below PREFIX, three units, a command, an account, an example setting
    uninstall   takes away all of it; --purge takes settings, state and the account along

A second install is an upgrade. With --destdir everything goes below that folder, for a package or an image:
no account is made and nothing is started. Standard library only. It says what it does.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import fcntl
import grp
import json
import os
import pwd
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "NOTICE",
    "agent",
    "dashboards",
    "bpf",
)
UNITS = ("hotstage-agent.service", "hotstage-notify.service", "hotstage-explorer.service")
UNIT_FOLDER = Path("/usr/local/lib/systemd/system")
SETTINGS = Path("/etc/hotstage")
PROGRAMS = SETTINGS / "probes.d"
"""An operator's own BPF programs: the agent takes them only from folders that root alone may write."""
EXAMPLES = {
    "README.md": "README.md",
    "programs.bpf.c": "programs.bpf.c.example",
    "lookups.bpf.c": "lookups.bpf.c.example",
}
"""What of deploy/probes.d goes there under which name: none of them is taken for a program."""
COMMAND = Path("/usr/local/bin/hotstage")
STATE = tuple(
    map(
        Path,
        (
            "/var/lib/hotstage",
            "/var/lib/private/hotstage-notify",
            "/var/lib/hotstage-notify",
            "/run/hotstage",
        ),
    )
)
ACCOUNT = "hotstage"
UNIT_PREFIX = "/opt/hotstage"
"""What the unit files say; another PREFIX is put in its place."""
MANIFEST = "installed.json"
SCRATCH = ".hotstage-"
"""How folders are called in which an environment is built, beside where it will be."""
HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108  # named, not used
"""Folders that the units do not see (ProtectHome=, PrivateTmp=)."""
EXIT_PREFLIGHT, EXIT_PERMISSION = 4, 5

Build = Callable[[Path, Path], Path]
"""(scratch folder, PREFIX) → the environment, made in the scratch folder."""


class Refusal(SystemExit):
    """A message and its exit code; nothing was changed, or the message says what was."""

    def __init__(self, message: str, code: int) -> None:
        print(f"hotstage: {message}", file=sys.stderr)
        super().__init__(code)


class Installation:
    """One place: what `install` puts there is written down, and `uninstall` reads it."""

    def __init__(self, prefix: Path, destdir: Path | None) -> None:
        self.prefix = prefix
        self.destdir = destdir
        self.files: list[str] = []
        self.folders: list[str] = []
        known = self.at(prefix / MANIFEST)
        self.is_there = known.is_file()
        if not self.is_there:
            return
        try:
            manifest = json.loads(known.read_text(encoding="utf-8"))
            self.files, self.folders = list(manifest["files"]), list(manifest["folders"])
        except (ValueError, KeyError, TypeError):
            say(f"{known} cannot be read: taking what every installation has")
            self.files = [str(COMMAND), *(str(UNIT_FOLDER / unit) for unit in UNITS)]

    def at(self, path: Path) -> Path:
        """Where an absolute path of the installed system lies now."""
        return path if self.destdir is None else self.destdir / path.relative_to("/")

    def make_folder(self, path: Path, mode: int = 0o755) -> None:
        """Make it and those above; the ones that were not there are written down."""
        for folder in reversed([path, *path.parents]):
            if not self.at(folder).exists():
                self.at(folder).mkdir()
                self.at(folder).chmod(mode)
                self.folders.append(str(folder))

    def write_down(self, environment: Path) -> None:
        """Into the environment before anything else is put anywhere, so that no failure leaves strays."""
        manifest = {"files": self.files, "folders": self.folders}
        (environment / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["install", "uninstall"])
    parser.add_argument("--prefix", type=Path, default=Path(UNIT_PREFIX), help="of the virtual environment")
    parser.add_argument("--destdir", type=_folder_or_none, help="install below this folder instead of /")
    parser.add_argument("--purge", action="store_true", help="uninstall settings, state and account too")
    options = parser.parse_args()
    if options.destdir is None and os.geteuid() != 0:
        raise Refusal(
            f"{options.verb} needs root: sudo make {options.verb}, or DESTDIR=folder", EXIT_PERMISSION
        )
    os.umask(0o022)  # the services are other users, and must be able to read what is installed
    carry_out(options.verb, options.prefix, options.destdir, purge=options.purge)
    return 0


def carry_out(
    verb: str, prefix: Path, destdir: Path | None, *, purge: bool, build: Build | None = None
) -> None:
    """One verb at one place, by nobody else at that time. Raises Refusal."""
    check_prefix(prefix)
    with only_one(prefix, destdir):
        place = Installation(prefix, destdir)
        if place.at(prefix).is_symlink():
            raise Refusal(
                f"{place.at(prefix)} is a link: name the folder it leads to as PREFIX", EXIT_PREFLIGHT
            )
        if verb == "install":
            install(place, build or build_environment)
        else:
            uninstall(place, purge=purge)


def check_prefix(prefix: Path) -> None:
    """It is written into unit files, and the services must see it."""
    if not prefix.is_absolute() or len(prefix.parts) < 3 or ".." in prefix.parts:
        raise Refusal(f"PREFIX={prefix}: an absolute path with a folder of its own is needed", 2)
    if not re.fullmatch(r"[A-Za-z0-9._+/-]+", str(prefix)):
        raise Refusal(f"PREFIX={str(prefix)!r}: letters, digits and . _ + - only, as unit files go", 2)
    if any(prefix.is_relative_to(hidden) for hidden in HIDDEN):
        raise Refusal(f"PREFIX={prefix}: the services see nothing below it; /opt/hotstage is the usual", 2)


@contextlib.contextmanager
def only_one(prefix: Path, destdir: Path | None) -> Iterator[None]:
    """Nobody else installs here meanwhile; what a killed installation left is put right or removed."""
    parent = prefix.parent if destdir is None else destdir / prefix.parent.relative_to("/")
    if not parent.is_dir():
        yield
        return
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(f"another installation into {parent} is under way", EXIT_PREFLIGHT) from None
        for left in sorted(parent.glob(f"{SCRATCH}*")):
            if (left / "before" / MANIFEST).is_file() and not (parent / prefix.name).exists():
                (left / "before").rename(parent / prefix.name)
                say(f"put {prefix} back, which an interrupted upgrade had moved away")
            shutil.rmtree(left)
        yield
    finally:
        os.close(descriptor)


def install(place: Installation, build: Build) -> None:
    """Everything that can refuse comes first; the environment is built aside and put in place by a rename."""
    check(place)
    was_there = place.is_there
    say(f"{'upgrading' if was_there else 'installing'} {place.prefix}: a minute or two")
    if place.destdir is None:
        make_account()
    for folder in (place.prefix.parent, UNIT_FOLDER, COMMAND.parent, SETTINGS, SETTINGS / "conf.d", PROGRAMS):
        place.make_folder(folder)
    place.files = [
        str(COMMAND),
        *(str(UNIT_FOLDER / unit) for unit in UNITS),
        *(str(PROGRAMS / name) for name in EXAMPLES.values()),
    ]
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=place.at(place.prefix.parent)) as scratch:
        made = build(Path(scratch), place.prefix)
        place.write_down(made)
        if was_there:
            place.at(place.prefix).rename(Path(scratch) / "before")
        made.rename(place.at(place.prefix))
    for unit in UNITS:
        put_unit(place, unit)
    put_link(place)
    put_settings(place)
    put_examples(place)
    if place.destdir is None:
        systemctl("daemon-reload")
        if was_there:
            systemctl("try-restart", *UNITS)
        say_what_next()


def uninstall(place: Installation, *, purge: bool) -> None:
    """Take away what an install wrote down; `purge` also what it leaves for you."""
    if not place.is_there and not purge:
        raise Refusal(
            f"{place.at(place.prefix)} is no installation of hotstage: is PREFIX right?", EXIT_PREFLIGHT
        )
    if place.destdir is None:
        systemctl("disable", "--now", *UNITS)
    for name in place.files:
        path = place.at(Path(name))
        if path.is_dir() and not path.is_symlink():
            say(f"left {name}: it is a folder, and not ours")
            continue
        path.unlink(missing_ok=True)
        say(f"removed {name}")
    if place.is_there:
        shutil.rmtree(place.at(place.prefix))
        say(f"removed {place.prefix}")
    left = [path for path in (SETTINGS, *STATE) if place.at(path).exists() or place.at(path).is_symlink()]
    if purge:
        for path in left:
            remove(place.at(path))
            say(f"removed {path}")
        if place.destdir is None:
            remove_account()
    for name in sorted(place.folders, key=len, reverse=True):
        folder = place.at(Path(name))
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    if place.destdir is None:
        systemctl("daemon-reload")
    if left and not purge:
        say(f"left for you: {', '.join(map(str, left))} and the account {ACCOUNT} (PURGE=1 removes them)")


# ---- parts of an installation


def check(place: Installation) -> None:
    """Refuse what could not work: a Python that the services cannot read, a folder that is not ours."""
    interpreter = Path(sys.executable).resolve()
    hidden = next((path for path in interpreter.parents if not path.stat().st_mode & 0o001), None)
    if hidden or {"home", "root"} & set(interpreter.parts[1:2]):
        raise Refusal(
            f"{interpreter} cannot be used by the services, which see no home: PYTHON=/usr/bin/python3 can",
            EXIT_PREFLIGHT,
        )
    there = place.at(place.prefix)
    if there.exists() and not place.is_there and any(there.iterdir()):
        raise Refusal(f"{there} holds something else: choose another PREFIX, or remove it", EXIT_PREFLIGHT)
    command = place.at(COMMAND)
    if command.exists() and not command.is_symlink():
        raise Refusal(f"{command} is not ours: move it away, then install again", EXIT_PREFLIGHT)


def build_environment(scratch: Path, prefix: Path) -> Path:
    """A virtual environment as it will be at `prefix`, built in `scratch`, whose name does not stay in it."""
    made = scratch / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", made)
    with tempfile.TemporaryDirectory(prefix="hotstage-build-") as aside:  # make knows no spaces in names
        tool, source = Path(aside) / "tool", Path(aside) / "source"
        source.mkdir()
        for name in SOURCES:
            copy(ROOT / name, source / name)
        run(sys.executable, "-m", "venv", tool)
        python = made / "bin/python"
        pip = (tool / "bin/python", "-m", "pip", "--python", python, "--disable-pip-version-check")
        constraints = ROOT / "deploy/constraints.txt"
        run(*pip, "install", "-q", "--no-compile", "-c", constraints, source, source / "agent")
    for record in made.rglob("direct_url.json"):
        record.unlink()
    for text in (made / "pyvenv.cfg", *(path for path in (made / "bin").iterdir() if not path.is_symlink())):
        text.write_text(text.read_text(encoding="utf-8").replace(str(made), str(prefix)), encoding="utf-8")
    # Byte code is made here, once: the services may not write, and it should not name the place of the build.
    compileall.compile_dir(
        made / "lib", quiet=2, stripdir=str(made), prependdir=str(prefix),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip
    made.chmod(0o755)
    return made


def put_settings(place: Installation) -> None:
    """The example, every key a comment, where there is no configuration yet."""
    place.make_folder(SETTINGS)
    place.make_folder(SETTINGS / "conf.d")
    settings = SETTINGS / "config.toml"
    if os.path.lexists(place.at(settings)):
        say(f"kept {settings} as it is; every setting: `hotstage config schema --example`")
        return
    shutil.copyfile(ROOT / "deploy/hotstage.example.toml", place.at(settings))
    # Addresses of chat services are secrets: readable to the services, and to nobody else.
    place.at(settings).chmod(0o640)
    if place.destdir is None:
        os.chown(place.at(settings), 0, grp.getgrnam(ACCOUNT).gr_gid)
    say(f"wrote {settings}: every setting with its default, as comments")


def put_examples(place: Installation) -> None:
    """How programs of one's own are written, beside where they go."""
    place.make_folder(PROGRAMS)
    for source, name in EXAMPLES.items():
        path = place.at(PROGRAMS / name)
        path.unlink(missing_ok=True)  # a link would be written through
        shutil.copyfile(ROOT / "deploy/probes.d" / source, path)
        path.chmod(0o644)
    say(f"wrote {PROGRAMS}: for programs of your own; none is active")


def put_unit(place: Installation, unit: str) -> None:
    text = (ROOT / "deploy/systemd" / unit).read_text(encoding="utf-8")
    path = place.at(UNIT_FOLDER / unit)
    path.unlink(missing_ok=True)  # a link would be written through
    path.write_text(text.replace(UNIT_PREFIX, str(place.prefix)), encoding="utf-8")
    path.chmod(0o644)
    say(f"wrote {UNIT_FOLDER / unit}")


def put_link(place: Installation) -> None:
    place.at(COMMAND).unlink(missing_ok=True)
    place.at(COMMAND).symlink_to(place.prefix / "bin/hotstage")
    say(f"linked {COMMAND}")


def make_account() -> None:
    """The agent's account; its group may use the agent's socket and read the configuration."""
    try:
        pwd.getpwnam(ACCOUNT)
    except KeyError:
        run("useradd", "--system", "--user-group", "--home-dir", "/nonexistent", "--no-create-home",
            "--shell", "/usr/sbin/nologin", ACCOUNT)  # fmt: skip
        say(f"made the account {ACCOUNT}")


def remove_account() -> None:
    try:
        pwd.getpwnam(ACCOUNT)
    except KeyError:
        return
    run("userdel", ACCOUNT)
    say(f"removed the account {ACCOUNT}")


def systemctl(*command: str) -> None:
    """Nothing where systemd does not run."""
    if Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", *command], check=False, stderr=subprocess.DEVNULL)


def say_what_next() -> None:
    say("look first:  hotstage doctor")
    say("start:       systemctl enable --now hotstage-agent hotstage-notify hotstage-explorer")
    say("settings:    /etc/hotstage/config.toml, then systemctl reload hotstage-agent hotstage-notify")


# ---- small things


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "objects", "libraries", "build")
        shutil.copytree(source, target, ignore=ignored)
    else:
        shutil.copyfile(source, target)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], check=False)
    if done.returncode:
        raise Refusal(
            f"`{command[0]} {command[1]} …` failed with {done.returncode}; see above", EXIT_PREFLIGHT
        )


def say(text: str) -> None:
    print(f"hotstage: {text}", flush=True)


def _folder_or_none(text: str) -> Path | None:
    return Path(text).absolute() if text else None


if __name__ == "__main__":
    sys.exit(main())
