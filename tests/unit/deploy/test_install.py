# SPDX-License-Identifier: Apache-2.0
"""`deploy/install.py` below a folder, with a small environment in place of the real one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PREFIX = Path("/opt/hotstage")


@pytest.fixture(scope="module")
def installer():
    spec = importlib.util.spec_from_file_location("hotstage_install", ROOT / "deploy/install.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def root(tmp_path):
    """A root with what every system has, and something of somebody else's."""
    for folder in ("etc", "usr/local/bin", "usr/local/lib", "opt/other", "var/lib"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    return tmp_path / "root"


class Service:
    """Installs and uninstalls below `root`; what the environment holds is the test's."""

    def __init__(self, installer, root: Path, prefix: Path = PREFIX) -> None:
        self.installer = installer
        self.root = root
        self.prefix = prefix

    def install(self, version: str = "1") -> None:
        def build(scratch: Path, prefix: Path) -> Path:
            made = scratch / "environment"
            (made / "bin").mkdir(parents=True)
            (made / "bin/hotstage").write_text(version)
            (made / f"only-in-{version}").write_text("")
            return made

        self.installer.carry_out("install", self.prefix, self.root, purge=False, build=build)

    def uninstall(self, *, purge: bool = False) -> None:
        self.installer.carry_out("uninstall", self.prefix, self.root, purge=purge)

    def listing(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def service(installer, root, monkeypatch):
    # The interpreter of a developer's environment may lie in a home; the refusal has a test of its own.
    monkeypatch.setattr(sys, "executable", "/usr/bin/true")
    return Service(installer, root)


def test_install_and_purge_leave_nothing(service):
    before = service.listing()
    service.install()
    assert "usr/local/lib/systemd/system/hotstage-agent.service" in service.listing()
    assert (service.root / "usr/local/bin/hotstage").readlink() == Path("/opt/hotstage/bin/hotstage")
    service.uninstall(purge=True)
    assert service.listing() == before


def test_an_empty_root_is_empty_again(installer, service, tmp_path):
    (tmp_path / "bare").mkdir()
    bare = Service(installer, tmp_path / "bare")
    bare.install()
    bare.uninstall(purge=True)
    assert bare.listing() == []


def test_settings_and_state_stay_without_purge_and_are_named(service, capsys):
    before = service.listing()
    service.install()
    (service.root / "var/lib/hotstage").mkdir()
    service.uninstall()
    left = set(service.listing()) - set(before)
    assert left == {"etc/hotstage", "etc/hotstage/config.toml", "var/lib/hotstage"}
    assert "left for you: /etc/hotstage, /var/lib/hotstage" in capsys.readouterr().out
    service.uninstall(purge=True)
    assert service.listing() == before


def test_a_second_install_is_an_upgrade_that_keeps_settings_and_leaves_no_old_file(service):
    service.install("1")
    settings = service.root / "etc/hotstage/config.toml"
    settings.write_text("[http]\n")
    service.install("2")
    assert settings.read_text() == "[http]\n"
    assert (service.root / "opt/hotstage/bin/hotstage").read_text() == "2"
    assert not (service.root / "opt/hotstage/only-in-1").exists()
    assert [path.name for path in (service.root / "opt").iterdir() if path.name.startswith(".")] == []


def test_an_upgrade_is_taken_away_as_a_whole(service):
    before = service.listing()
    service.install("1")
    service.install("2")
    service.uninstall(purge=True)
    assert service.listing() == before


def test_another_prefix_stands_in_the_units(installer, service):
    other = Service(installer, service.root, Path("/srv/tools/hotstage"))
    other.install()
    unit = (service.root / "usr/local/lib/systemd/system/hotstage-notify.service").read_text()
    assert "ExecStart=/srv/tools/hotstage/bin/hotstage notify" in unit
    assert "/opt/hotstage" not in unit


def test_the_settings_are_for_root_and_the_services_alone(service):
    service.install()
    assert (service.root / "etc/hotstage/config.toml").stat().st_mode & 0o777 == 0o640


def test_programs_of_ones_own_have_a_folder_of_roots_with_examples_that_are_none(service):
    before = service.listing()
    service.install()
    folder = service.root / "etc/hotstage/probes.d"
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.name for path in folder.iterdir()} == {
        "README.md", "programs.bpf.c.example", "lookups.bpf.c.example",
    }  # fmt: skip
    assert not [path for path in folder.iterdir() if path.name.endswith(".bpf.c")]
    assert "// hotstage-probe: 1\n" in (folder / "lookups.bpf.c.example").read_text()
    (folder / "mine.bpf.c").write_text("x")
    service.install("2")
    service.uninstall()
    assert [path.name for path in folder.iterdir()] == ["mine.bpf.c"]
    service.uninstall(purge=True)
    assert service.listing() == before


def test_a_folder_of_somebody_else_is_refused_and_untouched(installer, service, root, capsys):
    (root / "opt/other/thing").write_text("")
    before = service.listing()
    with pytest.raises(SystemExit) as refused:
        Service(installer, root, Path("/opt/other")).install()
    assert refused.value.code == 4
    assert "holds something else" in capsys.readouterr().err
    assert service.listing() == before


def test_a_command_of_somebody_else_is_refused_and_untouched(service, root):
    (root / "usr/local/bin/hotstage").write_text("mine")
    with pytest.raises(SystemExit):
        service.install()
    assert (root / "usr/local/bin/hotstage").read_text() == "mine"


def test_an_interpreter_in_a_home_is_refused(service, monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", "/root/python3")
    with pytest.raises(SystemExit) as refused:
        service.install()
    assert refused.value.code == 4
    assert "PYTHON=/usr/bin/python3" in capsys.readouterr().err


def test_uninstall_takes_nothing_away_where_nothing_was_installed(service, root):
    (root / "opt/hotstage").mkdir()
    (root / "opt/hotstage/thing").write_text("")
    with pytest.raises(SystemExit) as refused:
        service.uninstall()
    assert refused.value.code == 4
    assert (root / "opt/hotstage/thing").exists()


@pytest.mark.parametrize("prefix", ["relative/place", "/opt"])
def test_a_prefix_must_be_a_folder_of_its_own(installer, prefix, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["install.py", "install", "--prefix", prefix, "--destdir", "/nowhere"])
    with pytest.raises(SystemExit) as refused:
        installer.main()
    assert refused.value.code == 2


@pytest.mark.parametrize(
    "prefix", ["/opt/a b", "/opt/a%h", "/opt/a\nUser=root", "/opt/../home/x", '/opt/"x"']
)
def test_a_prefix_that_unit_files_could_misread_is_refused(installer, service, prefix, capsys):
    service.prefix = Path(prefix)
    before = service.listing()
    with pytest.raises(installer.Refusal):
        service.install()
    assert service.listing() == before
    assert "PREFIX=" in capsys.readouterr().err


@pytest.mark.parametrize("prefix", ["/home/x/hotstage", "/root/hotstage", "/tmp/hotstage"])
def test_a_prefix_that_the_services_do_not_see_is_refused(installer, service, prefix, capsys):
    service.prefix = Path(prefix)
    with pytest.raises(installer.Refusal):
        service.install()
    assert "the services see nothing below it" in capsys.readouterr().err


def test_a_prefix_that_is_a_link_is_refused_before_anything_changes(installer, service, capsys):
    service.install()
    (service.root / "opt/hotstage").rename(service.root / "opt/elsewhere")
    (service.root / "opt/hotstage").symlink_to("elsewhere")
    before = service.listing()
    for verb in (service.install, service.uninstall):
        with pytest.raises(installer.Refusal):
            verb()
    assert service.listing() == before
    assert "is a link" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', "null"])
def test_an_unreadable_list_of_files_does_not_keep_the_installation_for_ever(service, text):
    before = service.listing()
    service.install()
    (service.root / "opt/hotstage/installed.json").write_text(text)
    service.uninstall(purge=True)
    folders = {
        "usr/local/lib/systemd",
        "usr/local/lib/systemd/system",
    }  # whose they are is not known any more
    assert set(service.listing()) - folders == set(before)


def test_links_in_the_way_are_replaced_not_followed(service):
    (service.root / "usr/local/lib/systemd/system").mkdir(parents=True)
    precious = service.root / "opt/other/precious"
    precious.write_text("mine")
    (service.root / "usr/local/lib/systemd/system/hotstage-agent.service").symlink_to(precious)
    (service.root / "etc/hotstage").mkdir()
    (service.root / "etc/hotstage/config.toml").symlink_to("nowhere")
    service.install()
    assert precious.read_text() == "mine"
    assert (service.root / "etc/hotstage/config.toml").readlink() == Path("nowhere")


def test_a_folder_where_the_command_was_does_not_stop_the_rest(service):
    service.install()
    command = service.root / "usr/local/bin/hotstage"
    command.unlink()
    command.mkdir()
    service.uninstall(purge=True)
    assert command.is_dir()
    assert not (service.root / "opt/hotstage").exists()


def test_what_a_killed_installation_left_is_removed_and_an_environment_moved_away_is_put_back(service):
    before = service.listing()
    service.install("1")
    left = service.root / "opt/.hotstage-abc"
    left.mkdir()
    (service.root / "opt/hotstage").rename(left / "before")  # killed between the two renames of an upgrade
    (service.root / "opt/.hotstage-def").mkdir()  # killed in the build
    service.uninstall(purge=True)
    assert service.listing() == before


def test_two_installations_at_once_are_one_and_a_refusal(installer, service, capsys):
    with installer.only_one(PREFIX, service.root), pytest.raises(installer.Refusal):
        service.install()
    assert "under way" in capsys.readouterr().err
