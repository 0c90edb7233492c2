# SPDX-License-Identifier: Apache-2.0
"""Where signing secrets and authorization come from, and that they never show."""

from __future__ import annotations

import pytest

from hotstage.config.notify import Destination
from hotstage.errors import ConfigError
from hotstage.notify.destinations import Target, unsafe

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def with_authorization(tmp_path, text):
    (tmp_path / "auth").write_text(text)
    config = Destination(
        name="a", url="https://x.example", format="plain", authorization_file=str(tmp_path / "auth")
    )
    return Target.of(config, {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("s3cr3t-token\n", "Bearer s3cr3t-token"),
        ("\n  s3cr3t-token  \nnext line", "Bearer s3cr3t-token"),
        ("Bearer abc", "Bearer abc"),
        ("user:pass word", "Basic dXNlcjpwYXNzIHdvcmQ="),
        ("Basic dXNlcjpw", "Basic dXNlcjpw"),
    ],
)
def test_an_authorization_file_holds_a_token_or_user_and_password(tmp_path, text, value):
    target = with_authorization(tmp_path, text)
    assert target.authorization == value
    assert value not in repr(target)


@pytest.mark.parametrize("text", ["", "  \n", "two words", "töken", "Bearer two words"])
def test_an_authorization_that_cannot_be_is_an_error_that_does_not_show_it(tmp_path, text):
    with pytest.raises(ConfigError) as caught:
        with_authorization(tmp_path, text)
    assert "auth" in caught.value.message and "words" not in caught.value.message


def test_a_url_that_is_a_secret_comes_from_a_file(tmp_path):
    (tmp_path / "chat").write_text("https://chat.example/services/T0/B0/KEY\n")
    config = Destination(name="a", url_file=str(tmp_path / "chat"), format="slack")
    target = Target.of(config, {})
    assert (target.host, target.path, target.shown_url) == (
        "chat.example", "/services/T0/B0/KEY", "https://chat.example/…",
    )  # fmt: skip
    assert "KEY" not in repr(target)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "not one line"),
        ("https://a.example\nhttps://b.example", "not one line"),
        ("http://a.b/KEY", "loopback"),
    ],
)
def test_a_url_file_that_is_wrong_shows_nothing_of_it(tmp_path, text, wrong):
    (tmp_path / "chat").write_text(text)
    config = Destination(name="a", url_file=str(tmp_path / "chat"), format="slack")
    with pytest.raises(ConfigError, match=wrong) as caught:
        Target.of(config, {})
    assert "KEY" not in caught.value.message


@pytest.mark.parametrize("urls", [{}, {"url": "https://a.example", "url_file": "/x"}])
def test_one_of_url_and_url_file_is_needed(urls):
    with pytest.raises(ConfigError, match="one of url and url_file"):
        Target.of(Destination(name="a", format="plain", **urls), {})
    (error,) = unsafe([Destination(name="a", format="plain", **urls)])
    assert "one of url and url_file" in error.message, "a check of the configuration says so too"


def test_a_credential_that_is_missing_outside_its_unit_says_where_credentials_are():
    config = Destination(name="a", url="https://x.example", secret_file="hook")
    with pytest.raises(ConfigError) as caught:
        Target.of(config, {})
    assert "CREDENTIALS_DIRECTORY" in caught.value.remedy


def test_secrets_come_from_a_file_a_credential_or_the_environment(tmp_path):
    (tmp_path / "hook").write_text(SECRET + "\n")
    from_file = Target.of(
        Destination(name="a", url="https://x.example", secret_file=str(tmp_path / "hook")), {}
    )
    from_credential = Target.of(
        Destination(name="a", url="https://x.example", secret_file="hook"),
        {"CREDENTIALS_DIRECTORY": str(tmp_path)},
    )
    assert from_file.secrets == from_credential.secrets
    assert from_file.secrets


def test_two_secrets_in_a_variable_are_separated_by_a_space():
    config = Destination(name="a", url="https://x.example", secret_env="S")
    assert len(Target.of(config, {"S": f"{SECRET} {SECRET}"}).secrets) == 2


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"secret_file": "/nonexistent/secret"}, "No such file"),
        ({"secret_env": "UNSET"}, "UNSET holds no signing secret"),
        ({}, "no signing secret"),
    ],
)
def test_a_missing_secret_is_a_config_error(changed, wrong):
    with pytest.raises(ConfigError, match=wrong):
        Target.of(Destination(name="a", url="https://x.example", **changed), {})


def test_a_plain_receiver_may_do_without_a_signature():
    assert Target.of(Destination(name="a", url="https://x.example", format="plain"), {}).secrets == ()
