"""What a join decides and finds, from states that are made up."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import msgspec
import pytest

from foliot import native
from foliot.node.addressing import describe
from foliot.node.ethtool import Stamping, parse_speed, parse_stamping
from foliot.settings import NodeSettings, SettingsError
from foliot_agent.install import addressing, checks, envfile, kernel_trial
from foliot_agent.install.addressing import PlaceError
from foliot_agent.install.nics import NicState, RouteFound, rdma_devices
from foliot_agent.install.settingsfile import SettingsFile, check_telemetry
from foliot_agent.install.timekeeping import Discipline, keepers
from foliot_agent.install.tracked_files import Files
from foliot_schemas import Claim

_ANYBODY = NodeSettings(name="", index=0, nics=())


def state(device: str = "eth2", **changes) -> NicState:
    """A NIC with nothing wrong."""
    sound = NicState(
        device=device, index=2, kind="", admin_up=True, carrier=True, mtu=9000, addresses=("10.0.0.9",),
        is_default=False, speed_mbps=400_000, stamping=Stamping(hardware=True, kernel=True, phc_index=3),
    )  # fmt: skip
    return msgspec.structs.replace(sound, **changes)


def levels(found) -> list[str]:
    """Of findings."""
    return [each.level for each in found]


def test_the_lowest_index_that_nobody_has_is_proposed(settings_of):
    """Neither by a record nor by a claim; a node that has one keeps it; `skip` passes over some that are free."""
    nodes = {f"node{index}": describe(settings_of(index)) for index in (0, 1)}
    claims = {"index-3": Claim(node="c"), "address-10.0.0.1": Claim(node="c")}
    assert addressing.free_index("new", nodes, claims, _ANYBODY) == 2
    assert addressing.free_index("new", nodes, claims, _ANYBODY, skip=1) == 4
    assert addressing.free_index("new", nodes, claims, _ANYBODY, skip=2) == 5
    assert addressing.free_index("c", nodes, claims, _ANYBODY) == 3
    assert addressing.free_index("node1", nodes, claims, _ANYBODY) == 1


def test_a_rail_has_the_number_that_the_fleet_knows(settings_of):
    """A new one has the digits of its name, or the lowest that is free."""
    fleet = [describe(settings_of(0))]
    assert addressing.rail_numbers(["rail1", "rail0"], fleet, _ANYBODY) == {"rail1": 1, "rail0": 0}
    assert addressing.rail_numbers(["rail5", "east", "west", "b0"], fleet, _ANYBODY) == {
        "rail5": 5, "east": 2, "west": 3, "b0": 4
    }  # fmt: skip
    # mlx5_10, ib10: what a device is called may be beyond the numbers that there are.
    assert addressing.rail_numbers(["ib10", "ib7", "ib8"], fleet, _ANYBODY) == {"ib10": 2, "ib7": 7, "ib8": 3}
    other = msgspec.structs.replace(_ANYBODY, service_prefix="10.208.0.0/13")
    assert addressing.rail_numbers(["rail1"], fleet, other) == {"rail1": 1}


@pytest.mark.parametrize("given", ["rail0", "=eth2", "rail0="])
def test_a_rail_of_another_form_is_refused_with_an_example(given):
    """And so is one given twice."""
    with pytest.raises(PlaceError, match="--rail rail0=eth2"):
        addressing.parse_rails([given])
    with pytest.raises(PlaceError, match="given already"):
        addressing.parse_rails(["rail0=eth2", "rail1=eth2"])


def test_likely_rails_are_rdma_first_and_never_the_way_out():
    """Bridges, NICs without address, the default route's and the bus's are none."""
    states = {
        each.device: each
        for each in (
            state("eth0", is_default=True), state("eth1"), state("eth2"), state("eth3", rdma="mlx5_0"),
            state("docker0", kind="bridge"), state("eth4", addresses=()),
        )
    }  # fmt: skip
    assert addressing.candidates(states, "eth1") == ("eth3", "eth2")


def test_why_a_nic_is_no_likely_rail_is_said():
    """All that speaks against it; those of one reason together, and not hundreds of them."""
    made = [
        state("eth0", index=2, is_default=True), state("eth1", index=3), state("eth2", index=4, addresses=()),
        state("docker0", index=5, kind="bridge"), state("eth3", index=6),
        state("wg0", index=7, kind="wireguard", addresses=()),
        *(state(f"veth{number}", index=8 + number, kind="veth", addresses=()) for number in range(9)),
    ]  # fmt: skip
    states = {each.device: each for each in made}
    assert addressing.left_out(states, "eth1") == (
        "eth0 (the default route leaves by it); eth1 (it leads to the bus); "
        "eth2, veth0, veth1, veth2 and 6 more (no IPv4 address); docker0 (bridge, no NIC); "
        "wg0 (wireguard, no NIC, no IPv4 address)"
    )
    assert addressing.left_out({"eth3": states["eth3"]}, "eth1") == ""


@pytest.mark.parametrize(
    "url",
    ["gateway:8470", "gateway", "//gateway:8470", "grpc://gateway:4317", "http://", "http://gateway:x", "http://["],
)
def test_where_spans_go_is_a_whole_address(url):
    """Else it is refused, with an example."""
    with pytest.raises(SettingsError, match="with http:// or https://, as --telemetry http://gateway:8470"):
        check_telemetry(url)
    for whole in ("", "http://gateway:8470", "https://[fd00::1]/otlp"):
        check_telemetry(whole)


def test_a_nic_is_judged_by_link_mtu_and_stamps(settings_of):
    """Each with what to do about it."""
    nic = settings_of(0).nics[0]
    assert levels(checks.nic(nic, state())) == ["ok", "ok", "ok"]
    assert levels(checks.nic(nic, state(admin_up=False, carrier=False))) == ["ok", "stop", "ok", "ok"]
    assert levels(checks.nic(nic, state(carrier=False))) == ["ok", "warn", "ok", "ok"]
    assert levels(checks.nic(nic, state(mtu=1500))) == ["ok", "note", "ok"]
    assert levels(checks.nic(nic, state(mtu=1329))) == ["ok", "stop", "ok"]
    assert levels(checks.nic(nic, state(mtu=1550, stamping=None))) == ["ok", "ok", "warn"]
    assert "/dev/ptp3" in str(checks.nic(nic, state())[-1])
    assert "400 Gb/s" in str(checks.nic(nic, state())[0])


def test_a_peer_is_reached_by_its_rail_or_it_is_said():
    """Several next hops of the host itself need a hash that knows ports."""
    assert checks.reach("rail0", "eth2", "10.0.0.2", RouteFound(device="eth2", ways=1), "0").level == "ok"
    assert checks.reach("rail0", "eth2", "10.0.0.2", RouteFound(device="eth2", ways=2), "1").level == "ok"
    for route in (None, RouteFound(device="eth0", ways=1), RouteFound(device="eth2", ways=2)):
        assert checks.reach("rail0", "eth2", "10.0.0.2", route, "0").level == "warn"


def test_what_the_kernel_lacks_stops_only_if_the_agent_needs_it():
    """Nexthop objects it does not."""
    assert levels(checks.kernel({})) == ["ok"]
    assert levels(checks.kernel({kernel_trial.NEXTHOPS: "no"})) == ["note"]
    assert levels(checks.kernel({"VXLAN overlay": "no"})) == ["stop"]
    assert levels(checks.kernel({kernel_trial.NOT_PERMITTED: "no"})) == ["warn"]


def test_a_trial_that_does_not_end_is_said(monkeypatch):
    """A kernel that is busy elsewhere is no reason for a traceback."""
    monkeypatch.setattr(kernel_trial, "_UP_S", 0.0)
    assert kernel_trial.run_trial() == {"trial": "did not end within 0 s"}


def test_who_keeps_the_clock_is_told(tmp_path):
    """By the names of processes and the kernel's word; two that pull at one clock are a warning."""
    for number, name in enumerate(("chronyd", "bash", "systemd-timesyn")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text(f"{name}\n")
    assert keepers(tmp_path) == ("chrony", "systemd-timesyncd")
    kept = Discipline(synchronised=True, greatest_error_us=1_500, frequency_ppm=-3.2, keepers=("chrony",))
    assert str(checks.clock(kept)).endswith("kept by chrony, -3.2 ppm, within 1.5 ms")
    assert checks.clock(msgspec.structs.replace(kept, keepers=keepers(tmp_path))).level == "warn"
    assert checks.clock(msgspec.structs.replace(kept, keepers=("phc2sys", "ptp4l"))).level == "ok"
    assert checks.clock(msgspec.structs.replace(kept, synchronised=False, keepers=())).level == "note"


def test_whether_code_is_compiled_is_told():
    """Where it is not, with the reason and what to do; it stops nobody."""
    assert checks.native_code("").level == "ok"
    found = checks.native_code("foliot-native is not installed")
    assert found.level == "note"
    assert "as foliot-native is not installed; install by `make node`" in str(found)
    assert checks.native_code(native.OFF).to_do == "leave the variable out"


def test_what_a_driver_answers_is_read():
    """Flags and clock of ``ethtool_ts_info``, both halves of the speed of ``ethtool_cmd``."""
    every = struct.pack("IIiI12xI12x", 0x41, 1 | 2 | 4 | 8 | 16 | 64, 5, 0b11, 0b10)
    assert parse_stamping(every) == Stamping(hardware=True, kernel=True, phc_index=5, transmits=True, receives=True)
    ptp_alone = struct.pack("IIiI12xI12x", 0x41, 1 | 2 | 4 | 8 | 16 | 64, 0, 0b11, 1 << 12)
    assert parse_stamping(ptp_alone).transmits
    assert not parse_stamping(ptp_alone).receives
    receiving = struct.pack("IIi32x", 0x41, 8 | 16, -1)
    assert parse_stamping(receiving) == Stamping(hardware=False, kernel=False, phc_index=None)
    assert parse_speed(struct.pack("12xH14xH14x", 400_000 & 0xFFFF, 400_000 >> 16)) == 400_000
    assert parse_speed(struct.pack("12xH14xH14x", 0xFFFF, 0xFFFF)) is None


def test_rdma_devices_are_found_by_their_network_devices(tmp_path):
    """As sysfs has them; a host without has none."""
    (tmp_path / "mlx5_0/device/net/eth2").mkdir(parents=True)
    assert rdma_devices(tmp_path) == {"eth2": "mlx5_0"}
    assert rdma_devices(tmp_path / "away") == {}


def test_settings_made_by_hand_stay_and_the_same_is_not_written_anew(settings_of):
    """Comments and all, as long as nothing changes; what cannot be read is refused."""
    node = settings_of(3, probe_port=9000)
    text = SettingsFile(None, {"url": "nats://a:1"}).text(node)
    assert SettingsFile(text, {}).node == node
    noted = f"# mine\n{text}[probe]\nsweep_hz = 2.0\n"
    again = SettingsFile(noted, {"url": "nats://a:1"})
    assert again.text(node) == noted
    moved = again.text(msgspec.structs.replace(node, index=4))
    assert "sweep_hz = 2.0" in moved
    assert "probe_port = 9000" in moved
    moved_node = msgspec.structs.replace(node, index=4)
    assert list(again.changes(moved_node, {})) == ["node.index: 3 -> 4"]
    assert list(again.changes(moved_node, {"node.index": "free"})) == ["node.index = (free)"]
    with pytest.raises(SettingsError, match="not TOML"):
        SettingsFile("[", {})


def test_files_are_put_back_as_they_were_before_the_first_time(tmp_path):
    """Whatever was written since; folders that others use stay."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/old").write_text("before")
    for text in ("first", "second"):
        files = Files(tmp_path)
        files.want("etc/old", text)
        files.want("etc/new/deep", text)
        files.want_link("etc/new/link", "/etc/new/deep")
        assert "etc/old" in files.missing()
        files.put()
        assert not files.missing()
        assert not files.steps()
    (tmp_path / "etc/new/another").write_text("not ours")
    files.put_back()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "etc", "etc/new", "etc/new/another", "etc/old"
    ]  # fmt: skip
    assert (tmp_path / "etc/old").read_text() == "before"


def test_what_a_later_join_no_longer_wants_is_as_before_the_first(tmp_path):
    """It and its folder; and then it is nothing of a join's any more. What somebody else wrote there stays."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/old").write_text("before")
    (tmp_path / "etc/old").chmod(0o640)
    (tmp_path / "etc/ours").write_text("by hand")
    first = Files(tmp_path)
    for path in ("etc/old", "etc/a.d/new", "etc/b.d/new"):
        first.want(path, "joined")
    first.put()
    (tmp_path / "etc/b.d/another").write_text("by hand")

    later = Files(tmp_path)
    for path in ("etc/old", "etc/a.d/new", "etc/b.d/new", "etc/ours", "etc/never"):
        later.unwant(path)
    assert later.steps() == (
        f"write {tmp_path}/etc/foliot/joined.json", f"put back {tmp_path}/etc/old",
        f"remove {tmp_path}/etc/a.d/new", f"remove {tmp_path}/etc/b.d/new",
    )  # fmt: skip
    later.put()
    assert not later.steps()
    assert access(tmp_path / "etc/old")[0] == 0o640
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.name != "joined.json") == [
        "etc", "etc/b.d", "etc/b.d/another", "etc/foliot", "etc/old", "etc/ours"
    ]  # fmt: skip
    (tmp_path / "etc/old").write_text("by hand")
    Files(tmp_path).put_back()
    assert {name: (tmp_path / "etc" / name).read_text() for name in ("old", "ours")} == dict.fromkeys(
        ("old", "ours"), "by hand"
    )


def test_an_environment_file_keeps_what_it_is_not_asked_to_change():
    """Comments, blank lines and other variables; a variable is set once, where it stood."""
    text = "# FOLIOT_AGENT__KEY=old\n\nA=b=c\n FOLIOT_AGENT__ARMED=off\n; x\nFOLIOT_AGENT__ARMED=always\nnothing\n"
    assert envfile.value(text, envfile.KEY) is None
    assert envfile.value(text, envfile.ARMED) == "always"
    assert envfile.with_values(text, {envfile.ARMED: "bus-away", envfile.KEY: "k"}) == (
        "# FOLIOT_AGENT__KEY=old\n\nA=b=c\nFOLIOT_AGENT__ARMED=bus-away\n; x\nnothing\nFOLIOT_AGENT__KEY=k\n"
    )


def access(path) -> tuple[int, int, int]:
    """Mode, owner and group of a file."""
    found = path.stat()
    return found.st_mode & 0o7777, found.st_uid, found.st_gid


def test_nobody_may_read_more_after_a_join_or_a_leave_than_before(tmp_path):
    """A file keeps its owner and loses what is too wide; what a file was, comes back whole."""
    (tmp_path / "secret").write_text("key = 1\n")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "open").write_text("OTHER=1\n")
    (tmp_path / "open").chmod(0o644)
    if not os.geteuid():
        os.chown(tmp_path / "secret", 1234, 1235)
    before = {name: access(tmp_path / name) for name in ("secret", "open")}
    files = Files(tmp_path)
    files.want("secret", "key = 2\n")
    files.want("open", "KEY=2\n", 0o600)
    assert (files.is_for_all("secret"), files.is_for_all("open"), files.is_for_all("new")) == (False, True, True)
    files.put()
    assert access(tmp_path / "secret") == before["secret"]
    assert access(tmp_path / "open") == (0o600, *before["open"][1:])
    files.put_back()
    assert {name: access(tmp_path / name) for name in before} == before


def test_a_record_of_before_access_was_kept_gives_nobody_more(tmp_path):
    """The host was joined by an earlier version."""
    (tmp_path / "etc/foliot").mkdir(parents=True)
    (tmp_path / "etc/foliot/agent.env").touch(0o600)
    (tmp_path / "etc/foliot/joined.json").write_text('{"files": {"etc/foliot/agent.env": "KEY=1"}, "folders": []}')
    Files(tmp_path).put_back()
    assert access(tmp_path / "etc/foliot/agent.env")[0] == 0o600


def test_a_file_has_reached_the_disk_before_it_takes_the_old_one_s_place(tmp_path, monkeypatch):
    """Else a power cut could leave an empty one, whatever the rename promised."""
    (tmp_path / "one").write_text("before")
    synced, really = [], os.fsync

    def sync(file):
        synced.append((Path(f"/proc/self/fd/{file}").readlink().name, (tmp_path / "one").read_text()))
        really(file)

    monkeypatch.setattr(os, "fsync", sync)
    files = Files(tmp_path)
    files.want("one", "after")
    files.put()
    assert ("one.new", "before") in synced
    assert (tmp_path / "one").read_text() == "after"
