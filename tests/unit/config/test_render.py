# SPDX-License-Identifier: Apache-2.0
"""The example is valid and complete; nothing shown carries a secret."""

from __future__ import annotations

import re
import tomllib

import msgspec

from hotstage.config.load import sections
from hotstage.config.render import example, redacted_url, schema, shown, toml
from hotstage.config.settings import Config, Destination, NotifyConfig, OtlpConfig


def test_the_example_as_it_is_gives_the_defaults():
    assert msgspec.convert(tomllib.loads(example()), Config) == Config()


def test_the_example_uncommented_holds_every_key_with_its_default():
    settings = re.sub(r"(?m)^# (?=[a-z_]+ = |\[\[)", "", example())
    tree = tomllib.loads(settings)
    for name, struct in sections():
        defaults = msgspec.to_builtins(struct())
        present = {key for key in struct.__struct_fields__ if defaults[key] is not None}
        assert present <= set(tree[name]), name
        for key in present - {"destinations", "objectives", "endpoints"}:
            assert tree[name][key] == defaults[key], f"{name}.{key}"


def test_every_key_is_explained():
    undescribed = [
        f"{name}.{key}"
        for name, definition in schema()["$defs"].items()
        for key, entry in definition["properties"].items()
        if "description" not in entry
        and "$ref" not in str(entry)
        and not key.endswith("_seconds")
        and name != "LogConfig"
    ]
    assert undescribed == []


def test_a_shown_configuration_hides_what_a_url_carries():
    url = "https://user:pa55@hooks.example.com/services/T000/B000/XXXX?token=abc"
    config = Config(notify=NotifyConfig(destinations=[Destination(name="chat", url=url)]))
    text = toml(shown(config))
    for secret in ("pa55", "XXXX", "T000", "abc"):
        assert secret not in text
    assert redacted_url(url) == "https://hooks.example.com/services/…"
    endpoint = Config(otlp=OtlpConfig(endpoint="https://user:pa55@otlp.example.com"))
    assert toml(shown(endpoint)).count("pa55") == 0
    assert redacted_url("hooks.example.com/services/T000") == "…", "what has no scheme is nobody's URL"


def test_shown_toml_reads_back_as_the_same_configuration():
    config = Config()
    assert msgspec.convert(tomllib.loads(toml(shown(config))), Config) == config
