# SPDX-License-Identifier: Apache-2.0
"""Addresses that no setting permits, those that one does, and names that are not what they seem."""

from __future__ import annotations

import ipaddress

import pytest

from hotstage.notify.addresses import is_loopback_name, why_misspelled, why_refused


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.1.1",
        "fe80::1",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "fd00:a9fe:a9fe::1",
        "fd00:100::100:200",
        "169.254.170.23",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "224.0.0.1",
        "ff02::1",
        "0.0.0.0",
        "::",
        "240.0.0.1",
        "255.255.255.255",
        "::ffff:8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::1",
        "fec0::1",
    ],
)
def test_no_setting_permits_these(address):
    refusal = why_refused(ipaddress.ip_address(address), allow_private=True)
    assert refusal.reason and refusal.remedy


@pytest.mark.parametrize("address", ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1"])
def test_private_addresses_need_permission(address):
    assert "allow_private" in why_refused(ipaddress.ip_address(address), allow_private=False).remedy
    assert why_refused(ipaddress.ip_address(address), allow_private=True) is None


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111"])
def test_public_addresses_are_allowed(address):
    assert why_refused(ipaddress.ip_address(address), allow_private=False) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_says_so_by_itself(host):
    assert is_loopback_name(host)


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "localhost.example", "127.1", "0.0.0.0", "2130706433"])
def test_what_only_leads_to_loopback_does_not_count_as_it(host):
    assert not is_loopback_name(host)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a." * 130 + "example", "a!b", "x-.example"])
def test_names_that_no_host_has(host):
    assert why_misspelled(host).reason == "not the name of a host"
