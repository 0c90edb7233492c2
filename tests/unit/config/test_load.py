# SPDX-License-Identifier: Apache-2.0
"""A wrong setting names the key, the place and the remedy; a right one wins in the stated order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotstage.config.load import load
from hotstage.config.render import schema
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


DEEP = "[" * 5000 + "]" * 5000
WRONG_FILES = {
    "arrays nested 5,000 deep": f"[frame]\nheat_weights = {DEEP}\n",
    "tables nested 3,000 deep": f"[{'.'.join('a' * 3000)}]\nx = 1\n",
    "inline tables nested 3,000 deep": "x = " + "{a = " * 3000 + "1" + "}" * 3000,
    "an integer of 5,000 digits": "[frame]\nmax_endpoints = " + "9" * 5000 + "\n",
    "an integer of 400 digits": "[frame]\nmax_endpoints = 1" + "0" * 400 + "\n",
    "an integer beyond 64 bits": "[probes]\ncall_keys = 18446744073709551616\n",
    "a float for ever": "[windows]\nclose_after_seconds = inf\n",
    "a float beyond nanoseconds": "[breakers]\ncool_down_seconds = 1e300\n",
    "days beyond nanoseconds": "[store]\nretention_days = 1e6\n",
    "no number": "[detect]\nhang_seconds = nan\n",
    "no number in a table": "[frame]\nheat_weights = {a = nan}\n",
    "NUL in a path": '[store]\ndirectory = "/tmp/a\\u0000b"\n',
    "NUL in a glob": '[detect]\nrules_files = ["/tmp/a\\u0000b"]\n',
    "no directory": '[store]\ndirectory = ""\n',
    "no socket": '[http]\nsocket = ""\n',
    "a socket's path longer than the kernel takes": f'[http]\nsocket = "/{"a" * 107}"\n',
    "a port that is none": '[http]\nlisten = "127.0.0.1:99999999999999999999"\n',
    "a port just too high": '[http]\nlisten = "127.0.0.1:65536"\n',
    "an address that is none": '[explore]\nlisten = "zzz"\n',
    "half an IPv6 address": '[otlp]\nendpoint = "http://[::1"\n',
    "a URL with a password": '[otlp]\nendpoint = "https://u:p@h"\n',
    "a URL with a query, behind which paths would come": '[otlp]\nendpoint = "https://h/?key=K"\n',
    "an agent with a password": '[explore]\nagent = "http://u:p@h"\n',
    "a Prometheus with a token": '[explore]\nprometheus = "http://h/x?token=T"\n',
}


@pytest.mark.parametrize("text", WRONG_FILES.values(), ids=WRONG_FILES)
def test_whatever_stands_in_a_file_is_a_configuration_error_of_that_file(write, text: str):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert caught.value.remedy
    assert len(caught.value.message) < 500


def test_a_shape_is_told_in_words(write):
    with pytest.raises(ConfigError, match="without user name, query and fragment"):
        load(write('[otlp]\nendpoint = "https://user:pa55@h"\n'))


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:9178", "localhost:65535", "0.0.0.0:59999"])
def test_addresses_and_urls_that_are_right_pass(write, listen: str):
    config = load(write(f'[http]\nlisten = "{listen}"\n[explore]\nagent = "http://{listen}/base"\n'))
    assert config.http.listen == listen


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5000, '{"a": ' * 100_000, "\x00", "nan"])
def test_whatever_a_variable_holds_is_a_configuration_error(write, value: str):
    with pytest.raises(ConfigError, match="HOTSTAGE_FRAME_HEAT_WEIGHTS"):
        load(write(""), {"HOTSTAGE_FRAME_HEAT_WEIGHTS": value})


def test_every_number_is_bounded_so_that_it_fits_into_63_bits_of_nanoseconds():
    for name, definition in schema()["$defs"].items():
        for key, entry in definition["properties"].items():
            for each in (entry, entry.get("additionalProperties")):
                if isinstance(each, dict) and each.get("type") in ("number", "integer"):
                    most = each.get("maximum", each.get("exclusiveMaximum"))
                    unit = 86_400 if key.endswith("_days") else 1
                    assert most is not None, f"{name}.{key}"
                    assert each["type"] == "integer" or most * unit * 1e9 < 2**62, f"{name}.{key}"


@pytest.mark.parametrize(("closed", "mode"), [("conf.d", 0), ("conf.d", 0o644), (".", 0)])
def test_what_this_user_may_not_enter_is_named_and_not_left_out(public, drop_root, closed: str, mode: int):
    (public / "config.toml").write_text("")
    (public / "conf.d").mkdir()
    (public / "conf.d/10.toml").write_text("[probes]\nthreads = 5\n")
    (public / closed).chmod(mode)
    drop_root()
    with pytest.raises(ConfigError) as caught:
        load(public / "config.toml")
    assert str(public / closed) in caught.value.message
    assert "Permission denied" in caught.value.message


@pytest.mark.parametrize("name", ["config.toml", "conf.d/10.toml"])
def test_a_fifo_a_directory_and_a_device_are_no_files_and_hold_nobody_up(tmp_path: Path, name: str):
    (tmp_path / "conf.d").mkdir()
    path, main = tmp_path / name, tmp_path / "config.toml"
    main.write_text("")
    for make in (os.mkfifo, Path.mkdir, lambda place: place.symlink_to("/dev/zero")):
        path.unlink(missing_ok=True)
        make(path)
        with pytest.raises(ConfigError, match=r"not a regular file|Is a directory"):
            load(main)
        if path.is_dir():
            path.rmdir()


def test_a_file_too_large_to_be_settings_is_refused(write):
    with pytest.raises(ConfigError, match="larger than 1024 KiB"):
        load(write("#" * (1 << 20) + "\n"))


def test_a_conf_d_that_is_a_file_is_named(write, tmp_path: Path):
    (tmp_path / "conf.d").write_text("")
    with pytest.raises(ConfigError, match=r"conf\.d: Not a directory"):
        load(write(""))


@pytest.mark.parametrize("key", ['"a\\u001b[31mb"', '"a\\nERROR b"', '"a\\u202eb"'])
def test_no_key_moves_a_terminal_or_makes_a_line_of_a_log(write, key: str):
    with pytest.raises(ConfigError) as caught:
        load(write(f"{key} = 1\n"))
    assert caught.value.message.isprintable()
    assert "there is no section [a" in caught.value.message


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        (
            '[probes]\nloader = "libbfp"',
            ":2: `probes.loader`",
            "did you mean `libbpf`? it is one of auto, libbpf, bcc",
        ),
        ('[log]\nlevel = "loud"', ":2: `log.level`", "it is one of debug, info, warning, error"),
        (
            '[breakers]\nscopes = ["stage", "hosts"]',
            ":2: `breakers.scopes[1]`",
            "did you mean `host`? it is one of host, gpu, stage, modality, endpoint, instance",
        ),
        (
            '[[notify.destinations]]\nname = "a"\nformat = "json"',
            ":3: `notify.destinations[0].format`",
            "it is one of cloudevents, plain, slack, alertmanager, alertmanager_webhook",
        ),
        (
            "[classes]\ntoken_weights = {imagee = 2.0}",
            ":2: `classes.token_weights`: Invalid enum value 'imagee'",
            "did you mean `image`? it is one of text, image, audio, video",
        ),
        (
            '[[stages.rules]]\nstage = "queue"\nthread = "q"\n[[stages.rules]]\nstage = "quue"\nthread = "r"',
            ":5: `stages.rules[1].stage`",
            "did you mean `queue`? it is one of gateway, ",
        ),
        (
            '[[stages.rules]]\nthread = "q"\nstage = "queue"\n[[stages.rules]]\nstage = "safety_check"',
            ":5: `stages.rules[1].stage`",
            "a rule names a pinned stage, a server's own stages come from its marks: it is one of gateway, ",
        ),
        (
            '[[stages.rules]]\nthread = "q"\nstage = "queue"\n'
            '[[stages.rules]]\nthread = "*"\nstage = "queue"',
            ":4: `stages.rules[1]`: `thread` matches everything",
            "config schema",
        ),
        (
            'stages.rules = [{thread = "q", stage = "queue"},\n{thread = "r", stage = "quue"}]',
            "config.toml: `stages.rules[1].stage`",
            "did you mean `queue`?",
        ),
        (
            '[[stages.rules]]\nstage = "queue"\nthread = "a-very-long-thread-name-*"',
            ":1: `stages.rules[0]`: `thread` fits none: the kernel keeps 15 bytes of a thread's name",
            'write thread = "a-very-long-thr*"',
        ),
        ("[frame]\nheat_weights = {a = 1, b = -1}", ":2: `frame.heat_weights[...]`", "config schema"),
    ],
)
def test_a_word_that_is_no_choice_is_told_the_choices(write, text, place, remedy):
    with pytest.raises(ConfigError) as refused:
        load(write(text), {})
    assert place in refused.value.message
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("HOTSTAGE_PROBES_RUNG", "X", "it is one of auto, S, M, P"),
        ("HOTSTAGE_BREAKERS_SCOPES", '["hosts"]', "did you mean `host`? it is one of host, gpu, "),
        ("HOTSTAGE_BREAKERS_SCOPES", "host", "lists and tables are written as JSON"),
        ("HOTSTAGE_CLASSES_TOKEN_WEIGHTS", '{"imagee": 2}', "did you mean `image`? it is one of text, "),
        ("HOTSTAGE_STAGES_RULES", '[{"stage": "quue", "thread": "q"}]', "did you mean `queue`? it is one of"),
        ("HOTSTAGE_STAGES_RULES", '[{"stage": "queue", "thred": "q"}]', "did you mean `thread`?"),
    ],
)
def test_a_variable_that_is_no_choice_is_told_the_choices(tmp_path, variable, value, remedy):
    with pytest.raises(ConfigError) as refused:
        load(None, {variable: value})
    assert variable in refused.value.message
    assert refused.value.remedy.startswith(remedy)
