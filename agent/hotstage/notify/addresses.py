# SPDX-License-Identifier: Apache-2.0
"""Which hosts and addresses events must never go to, and why. Pure: it asks no resolver and reads no setting.

Only root writes the URLs, but a URL can be pasted from anywhere and names are answered by others: what leads
into this host's own neighbourhood (metadata services above all) is refused however it is spelled.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

# Forms that carry an IPv4 address inside, which the checks for IPv4 would not see: 4-in-6, NAT64, 6to4,
# Teredo.
_CARRIERS = tuple(
    ipaddress.IPv6Network(network)
    for network in ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",  # most clouds
        "100.100.100.200",  # Alibaba Cloud
        "192.0.0.192",  # Oracle Cloud, classic
        "168.63.129.16",  # Azure's host agent
        "fd20:ce::254",  # Google Cloud
        "fd00:c1::a9fe:a9fe",  # Oracle Cloud
        "fd00:42::42",  # Scaleway
        "fd00:a9fe:a9fe::1",  # Akamai (Linode)
        "fd00:100::100:200",  # Alibaba Cloud
    )
)
# Amazon's: metadata (::254), credentials of pods (::23), resolver and time beside them.
_METADATA_NETWORK = ipaddress.IPv6Network("fd00:ec2::/32")
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")  # neither private nor global to `ipaddress`
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# What the WHATWG URL standard and inet_aton read as the last part of an IPv4 address.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ELSEWHERE = "name the receiver's own host"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why events must not go somewhere, and what would help."""

    reason: str
    remedy: str


def literal(host: str) -> Address | None:
    """The address that `host` writes out, None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(address: Address) -> bool:
    """127.0.0.0/8 or ::1, and nothing that only maps to it."""
    return address.is_loopback if isinstance(address, IPv4Address) else int(address) == 1


def is_loopback_name(host: str) -> bool:
    """Whether a URL's host says by itself that it is this machine."""
    address = literal(host)
    return host == "localhost" if address is None else is_loopback(address)


def why_misspelled(host: str) -> Refusal | None:
    """What is wrong with a URL's host (lower case) as text; None for a name or a plain address."""
    if "%" in host:
        return Refusal("a host with a % (a zone or an encoded character)", "write the plain name or address")
    if literal(host) is not None:
        return None
    if host.endswith("."):
        return Refusal("a host that ends in a dot", "leave the dot at the end out")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return Refusal(
            "an IPv4 address in disguise (decimal, octal, hexadecimal or shortened)",
            "write an address as four decimal numbers",
        )
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return Refusal("not the name of a host", "letters, digits and hyphens between dots")
    if host in _METADATA_NAMES:
        return Refusal("the name of a metadata service", _ELSEWHERE)
    return None


def why_refused(address: Address, *, allow_private: bool) -> Refusal | None:
    """Why events must not go to `address` (not loopback); None if they may."""
    if isinstance(address, IPv6Address) and any(address in network for network in _CARRIERS):
        return Refusal("an IPv4 address in disguise", "use the IPv4 address itself, or a native IPv6 one")
    if address in _METADATA or address in _METADATA_NETWORK or address.is_link_local:
        return Refusal("a link-local or metadata address", _ELSEWHERE)
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    if address.is_multicast or address.is_unspecified or address.is_reserved or is_site_local:
        return Refusal("no host's address", _ELSEWHERE)
    is_private = address.is_private or (isinstance(address, IPv4Address) and address in _SHARED)
    if is_private and not allow_private:
        return Refusal("a private address", "allow_private = true permits it for this destination")
    if not is_private and not address.is_global:
        return Refusal("not a public address", _ELSEWHERE)
    return None
