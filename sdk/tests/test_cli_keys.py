"""`foliot keys`: files, modes and words."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import stat

import pytest

from foliot.bus.credentials import holder
from foliot.cli import main
from foliot.keys import certificates
from foliot.keys.tokens import read_key


@pytest.fixture
def keys(tmp_path, capsys):
    """Runs `foliot keys` in a directory; gives its exit status and what it said."""

    def run(*arguments):
        status = main(["keys", "--keys", str(tmp_path / "keys"), *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_a_fleets_keys_are_made_once(keys, tmp_path):
    """A second time would lock everybody out: it is refused, and changes nothing."""
    assert keys("make")[0] == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    status, _, said = keys("make")

    assert (status, "already" in said) == (1, True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def contents(folder):
    """Every file's bytes but the server's configuration, which holds the time it was written at."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "server.conf"}


def test_what_is_there_already_is_left(keys, tmp_path):
    """Whoever starts a fleet asks for its keys at each start, and they are made at the first."""
    made = []
    for _ in range(2):
        assert keys("make", "--missing", "--host", "nats.example")[0] == 0
        assert keys("node", "--missing", "node3")[0] == 0
        made.append(contents(tmp_path))
    assert made[0] == made[1]
    assert len(keys("list")[1].splitlines()) == 9


@pytest.mark.parametrize(
    "lost",
    ["server/server.pem", "server/server-key.pem", "services/sync/sync.creds", "services/sync/ca.pem",
     "nodes/node3/fleet.key", "nodes/node3/agent.creds", "tools/reader.creds"],
)  # fmt: skip
def test_what_is_missing_is_made_with_the_keys_that_are_there(keys, tmp_path, lost):
    """Be it lost, or never made because the first making was broken off.

    Nothing else changes but the list of what was made.
    """
    keys("make", "--host", "nats.example")
    keys("node", "node3")
    before = contents(tmp_path)
    (tmp_path / "keys" / lost).unlink()
    keys("make", "--missing", "--host", "nats.example")
    keys("node", "--missing", "node3")
    after = contents(tmp_path)

    changed = {str(path.relative_to(tmp_path / "keys")) for path in before if after[path] != before[path]}
    assert set(after) == set(before)
    assert changed <= {lost, "secret/issued.json", "server/server.pem", "server/server-key.pem"} | {
        lost.replace("ca.pem", "sync.creds")
    }
    assert ("server/server.pem" in changed) == lost.startswith("server/")


def test_credentials_of_lost_keys_are_made_anew(keys, tmp_path):
    """They are there, but nobody vouches for them any more: where `secret` was lost, everything is new."""
    keys("make", "--host", "nats.example")
    keys("node", "node3")
    before = contents(tmp_path)
    shutil.rmtree(tmp_path / "keys" / "secret")
    (tmp_path / "keys" / "ca.pem").unlink()
    keys("make", "--missing", "--host", "nats.example")
    keys("node", "--missing", "node3")
    after = contents(tmp_path)
    assert set(after) == set(before)
    assert all(after[path] != before[path] for path in before)


def test_what_was_revoked_stays_void(keys, tmp_path):
    """A fleet that is started again does not let a node in that was sent away."""
    keys("make")
    keys("node", "node3")
    keys("revoke", "node3")
    before = contents(tmp_path)
    keys("make", "--missing")
    keys("node", "--missing", "node3")
    assert contents(tmp_path) == before
    assert all("revoked" in line for line in keys("list")[1].splitlines() if "node3" in line)


def test_the_servers_certificate_is_renewed_for_other_names_and_before_its_end(keys, tmp_path):
    """By the same authority: clients need nothing new."""
    keys("make", "--host", "nats.example")
    made, authority = ((tmp_path / "keys" / name).read_bytes() for name in ("server/server.pem", "ca.pem"))
    now = dt.datetime.now(dt.UTC)
    assert certificates.serves(made, ("nats.example",), now + dt.timedelta(days=790))
    assert not certificates.serves(made, ("nats.example",), now + dt.timedelta(days=800))

    keys("make", "--missing", "--host", "nats.example", "--host", "10.0.0.5")
    renewed = (tmp_path / "keys" / "server" / "server.pem").read_bytes()
    assert certificates.serves(renewed, ("10.0.0.5", "nats.example"), now)
    assert not certificates.serves(renewed, ("nats.example",), now)
    assert (tmp_path / "keys" / "ca.pem").read_bytes() == authority


def test_a_role_of_a_newer_version_gets_its_key_with_the_permissions(keys, tmp_path):
    """After an update; the credentials that there are stay as they are."""
    keys("make")
    (tmp_path / "keys" / "secret" / "scheduler.nk").unlink()
    before = contents(tmp_path)
    assert keys("server-conf")[0] == 0
    after = contents(tmp_path)
    assert {path.name for path in after.keys() - before.keys()} == {"scheduler.nk"}
    assert all(after[path] == before[path] for path in before)


def test_every_service_has_credentials_of_its_role(keys, tmp_path):
    """And the two processes of a node have theirs, by the node's name as a subject token."""
    keys("make")
    keys("node", "node3", "Node.4")

    folder = tmp_path / "keys"
    for role in ("sync", "detector", "remediator", "gateway"):
        assert holder((folder / "services" / role / f"{role}.creds").read_text())[0] == role
    for role in ("scheduler", "reader", "admin"):
        assert holder((folder / "tools" / f"{role}.creds").read_text())[0] == role
    for role in ("probe", "agent"):
        assert holder((folder / "nodes" / "_4eode_2e4" / f"{role}.creds").read_text()) == (role, "_4eode_2e4")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_secret_only_its_owner_reads_and_what_is_not_everybody(keys, tmp_path, umask):
    """Whatever the umask says; and what the server reads holds no seed."""
    before = os.umask(umask)
    try:
        keys("make", "--host", "nats.example")
        keys("node", "node3")
    finally:
        os.umask(before)
    folder = tmp_path / "keys"
    public = {"server.conf", "ca.pem", "server.pem"}
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.is_dir():
            assert mode == 0o700, path
        else:
            assert mode == (0o644 if path.name in public else 0o600), path
    seeds = [read_key(path.read_text()).seed for path in (folder / "secret").glob("*.nk")]
    conf = (folder / "server" / "server.conf").read_text()
    assert seeds
    assert not any(seed in conf for seed in seeds)


def test_what_was_made_is_listed_and_revoked_by_name(keys, tmp_path):
    """What is revoked stays in the list; a name that nobody has is an error."""
    keys("make")
    keys("node", "node3", "--days", "30")
    keys("tool", "grafana")
    keys("tool", "slurm", "--role", "scheduler")
    before = (tmp_path / "keys" / "server" / "server.conf").read_text()
    status, said, _ = keys("revoke", "node3")
    assert (status, said.count("revoked: ")) == (0, 2)
    assert (tmp_path / "keys" / "server" / "server.conf").read_text() != before
    listed = keys("list")[1].splitlines()
    assert sum("node3" in line and "revoked" in line for line in listed) == 2
    assert sum(line.startswith("reader") and "grafana" in line and "holds" in line for line in listed) == 1
    assert sum(line.startswith("scheduler") and "slurm" in line and "holds" in line for line in listed) == 1

    status, _, said = keys("revoke", "node9")
    assert (status, "no credentials of node9" in said) == (1, True)


def test_without_keys_there_is_nothing_to_sign_with(keys):
    """The error says what to do."""
    status, _, said = keys("node", "node3")
    assert (status, "foliot keys" in said) == (1, True)


def test_the_running_servers_operator_stays_the_same(keys, tmp_path):
    """A server takes a new account token while it runs, but no other operator token."""
    keys("make")
    conf = tmp_path / "keys" / "server" / "server.conf"
    operator = [line for line in conf.read_text().splitlines() if line.startswith("operator:")]
    keys("tool", "grafana")
    keys("revoke", "grafana")
    keys("server-conf")
    assert [line for line in conf.read_text().splitlines() if line.startswith("operator:")] == operator


def test_a_roles_subjects_can_be_read(keys):
    """For whoever asks what a stolen file would be worth."""
    _, said, _ = keys("subjects", "probe")
    assert "publish    foliot.v1.observation.port.NODE" in said.splitlines()
