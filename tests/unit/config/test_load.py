# SPDX-License-Identifier: Apache-2.0
"""A wrong setting names the key, the place and the remedy; a right one wins in the stated order."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.config.load import load
from hotstage.config.settings import Config
from hotstage.errors import ConfigError


@pytest.fixture
def write(tmp_path: Path):
    def write_(text: str, name: str = "config.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_


def test_nothing_given_is_the_defaults(tmp_path: Path):
    empty = tmp_path / "config.toml"
    empty.write_text("")
    assert load(empty) == Config()


def test_later_sources_win_in_order(write):
    main = write('[probes]\nloader = "bcc"\nthreads = 11\nrequests = 21\ncall_keys = 31\n')
    write("[probes]\nthreads = 12\nrequests = 22\ncall_keys = 32\n", "conf.d/10.toml")
    write("[probes]\nrequests = 23\ncall_keys = 33\n", "conf.d/20.toml")
    config = load(main, {"HOTSTAGE_PROBES_CALL_KEYS": "34"}, {("probes", "loader"): "libbpf"})
    assert (config.probes.threads, config.probes.requests, config.probes.call_keys) == (12, 23, 34)
    assert config.probes.loader == "libbpf"


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("[probes]\nrung = 'S'\nloadr = 1\n", ":3: [probes] has no key `loadr`", "`loader`"),
        ("[probe]\n", ":1: there is no section [probe]", "`probes`"),
        ("[probes]\nthreads = -1\n", ":2: `probes.threads`", "schema"),
        ("[probes]\nthreads = 'many'\n", ":2: `probes.threads`: Expected `int`, got `str`", "schema"),
        (
            "[[notify.destinations]]\nname = 'a'\nurl = 'b'\nurll = 'c'\n",
            "[notify.destinations[0]] has no key `urll`",
            "`url`",
        ),
        ("[probes\n", "not valid TOML", "mend"),
    ],
)
def test_a_wrong_file_names_key_place_and_remedy(write, text: str, message: str, remedy: str):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert remedy in (caught.value.remedy or "")
    assert caught.value.exit_code == 2


def test_a_named_file_must_exist(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(tmp_path / "absent.toml")


def test_an_unknown_variable_of_a_known_section_is_refused(write):
    with pytest.raises(ConfigError) as caught:
        load(write(""), {"HOTSTAGE_HTTP_LISTN": "x"})
    assert "HOTSTAGE_HTTP_LISTN" in caught.value.message
    assert "`listen`" in (caught.value.remedy or "")


def test_variables_of_other_programs_are_left_alone(write):
    assert load(write(""), {"HOTSTAGE_SIM_TRUTH": "x", "PATH": "/bin"}) == Config()


def test_lists_and_tables_in_variables_are_json(write):
    config = load(
        write(""), {"HOTSTAGE_FRAME_HEAT_WEIGHTS": '{"/v1/vision": 2.5}', "HOTSTAGE_PROBES_XID": "false"}
    )
    assert config.frame.heat_weights == {"/v1/vision": 2.5}
    assert config.probes.xid is False
