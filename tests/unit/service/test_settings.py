"""The settings of a replica, checked before anything starts."""

from __future__ import annotations

import pytest

from webhook.service.settings import Settings, SettingsError


@pytest.mark.parametrize("address", ["localhost", "", "10.0.0.0/28", "[::1]", "10.0.0.1:8443"])
def test_an_address_of_the_certificate_is_an_ip_address(address: str) -> None:
    """Any other one would be found when the certificate is made, in a thread."""
    with pytest.raises(SettingsError, match=r"--address: '.*' is no IP address"):
        Settings(namespace="a", identity="b", addresses=("10.0.0.1", "::1", address))
    assert Settings(namespace="a", identity="b", addresses=("10.0.0.1", "::1")).addresses == ("10.0.0.1", "::1")
