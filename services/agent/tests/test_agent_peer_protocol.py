"""Sealed datagrams, and the guard against old ones."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.settings import SettingsError
from foliot_agent.core.peer_protocol import ReplayGuard, Seal
from foliot_agent.settings import AgentSettings
from foliot_schemas.notice import Echo, Notice, NoticeSeen

_KEY = "a key that the fleet shares"
_NOTICE = Notice(node="node1", rail="rail0", state="lost", fault="boot1/node1.rail0/carrier-2", sequence=5, at_ns=100)


@pytest.mark.parametrize(
    "message", [_NOTICE, NoticeSeen(node="node2", sequence=5, moved=True), Echo(node="node1", token=1, answer=False)]
)
def test_what_is_sealed_is_opened_with_the_same_key_only(message):
    """Every kind of message comes back as it was; under another key it is refused."""
    assert Seal(_KEY).open(Seal(_KEY).close(message)) == message
    with pytest.raises(ValueError, match="the seal does not fit"):
        Seal("another key of the same kind").open(Seal(_KEY).close(message))


@given(st.data())
def test_no_byte_of_a_datagram_can_be_changed(data):
    """Whatever bit flips, in the seal or under it, the datagram is refused."""
    sealed = bytearray(Seal(_KEY).close(_NOTICE))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ValueError, match="seal"):
        Seal(_KEY).open(bytes(sealed))


@given(st.binary(max_size=200))
def test_rubbish_is_refused_not_raised_over(data):
    """Anybody may send anything to the port."""
    with pytest.raises(ValueError, match="seal"):
        Seal(_KEY).open(data)


def judged(guard: ReplayGuard, now_ns: int = 100, *, synchronised: bool = True, **changes) -> str:
    """The guard's verdict on the notice with changes."""
    return guard.judge(msgspec.structs.replace(_NOTICE, **changes), now_ns, synchronised=synchronised)


def test_a_notice_is_new_once_and_an_older_one_never():
    """Repetitions are answered again, what was overtaken is dropped."""
    guard = ReplayGuard()
    assert judged(guard) == "new"
    assert judged(guard) == "repeat"
    assert judged(guard, sequence=4) == "old"
    assert judged(guard, sequence=6) == "new"
    assert judged(guard, node="node2", sequence=1) == "new"


def test_a_notice_about_one_nic_does_not_outdate_one_about_another():
    """Two NICs lost at once: what is overtaken by the other's notice is believed all the same."""
    guard = ReplayGuard()
    assert judged(guard, rail="rail1", sequence=6) == "new"
    assert judged(guard, sequence=5) == "new"
    assert judged(guard, rail="rail1", sequence=6) == "repeat"


def test_a_new_boot_counts_anew_but_a_recording_of_an_old_boot_is_old():
    """Over a boot the time decides."""
    guard = ReplayGuard()
    judged(guard)
    assert judged(guard, fault="boot2/node1.rail0/carrier-1", sequence=1, at_ns=200) == "new"
    assert judged(guard, sequence=9) == "old"


def test_a_recording_is_old_to_a_guard_that_remembers_nothing():
    """By synchronised clocks; without them nothing can be said of its age."""
    assert judged(ReplayGuard(), now_ns=20_000_000_000) == "old"
    assert judged(ReplayGuard(), now_ns=20_000_000_000, synchronised=False) == "new"


def test_an_armed_agent_needs_a_key():
    """The message names the setting."""
    with pytest.raises(ValueError, match=r"`key`.*agent\.armed is 'always'"):
        AgentSettings(armed="always", key="short")
    assert AgentSettings().armed == "off"


def test_an_agents_key_may_stand_in_a_file(tmp_path):
    """As `foliot keys node` writes it; what cannot be read, or is no key, stops the start and names the setting."""
    path = tmp_path / "fleet.key"
    settings = AgentSettings(armed="always", key_file=str(path))
    with pytest.raises(SettingsError, match=r"agent\.key_file: .*fleet\.key: No such file"):
        settings.secret()
    path.write_text("short\n")
    with pytest.raises(SettingsError, match=r"agent\.key_file: .*at least 16"):
        settings.secret()
    path.write_text("a key that the fleet shares\n")
    assert settings.secret() == "a key that the fleet shares"
