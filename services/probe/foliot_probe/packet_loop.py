"""What sends and hears a node's probes: the seam between numpy's packet loop and the compiled one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from foliot.clock import InjectedNic
    from foliot_probe.core.measure.sessions import Completed

    Rows = NDArray[np.intp]
    Times = NDArray[np.int64]


class SilenceChanges(NamedTuple):
    """Rows whose incoming path has just fallen silent, or speaks again."""

    fell: Rows
    again: Rows
    heard_last_ns: Times
    """As in `Report`, of those that fell and then of those that speak again."""
    heard_sequence: NDArray[np.int64]
    listened_ns: int


class Report(NamedTuple):
    """What the streams of a node did since the last report; a column has a value for each row. Times are local."""

    listened_ns: int
    """When the sockets were last read. All packets that had come by then have been heard, and none that came later."""
    outgoing: Completed
    """Probes sent of which both stamps have become known."""
    incoming: Completed
    sent: NDArray[np.int64]
    left_sequence: NDArray[np.int64]
    """The last probe that left; 0: none did."""
    left_ns: Times
    """When it had left for certain, by the clock that stamped it; 0: never."""
    unsent: NDArray[np.int64]
    """Probes that never left though later ones did: the host itself dropped them."""
    proven: NDArray[np.int64]
    """Probes that the peer sent, as the heard sequence numbers prove."""
    received: NDArray[np.int64]
    full_proven: NDArray[np.int64]
    full_received: NDArray[np.int64]
    full_bytes: NDArray[np.int64]
    """Size of padded probes as packets; 0: none are sent."""
    heard_last_ns: Times
    """When the stream was heard last; 0: never."""
    heard_sequence: NDArray[np.int64]
    """The highest probe heard; 0: none was."""
    own_kind: NDArray[np.int64]
    """The kind of own stamps, as an index of `KINDS`; `HARDWARE`: they are of the NIC's own clock."""
    peer_kind: NDArray[np.int64]
    """The same of the peer's."""


class PacketLoop(Protocol):
    """The probes of a node, by the rows of its stream table. All times but those of reports are monotonic and in ns.

    The contract test `test_probe_packet_loop.py` holds the makers equal.
    """

    runs: bool
    """Whether it can tick by itself: then `run`, `stop` and `take_late_ns` may be called."""

    def close(self) -> None:
        """Reads no socket any more. It closes none."""

    def add_socket(self, place: int, opened: socket.socket) -> None:
        """Sends and hears the streams of this place by this socket."""

    def watch_nic(self, place: int, injected: InjectedNic | None) -> None:
        """Holds the NIC's own stamps against the kernel's, at a place whose socket asks for both.

        Parameters:
            injected: stands for the NIC's stamps in a lab; None: there are real ones.
        """

    def set_shifts(self, shift_ns: Times) -> None:
        """Says by how much the clock in the NIC of each place is ahead of local time now; 0: that is not known."""

    def take_stamp_counts(self) -> NDArray[np.int64]:
        """What was counted at each place since the last call, of packets that left and that came.

        The last axis is as `nic_stamps` has it: `PACKETS`, `STAMPED` and `ODD`.
        """

    # -- what there is to probe ---------------------------------------------------------------------------------------

    def grow(self, rows: int) -> None:
        """Makes room for so many rows."""

    def begin(
        self, row: int, place: int, peer: tuple[int, int], *, session: int, first: int, every: int, tick: int
    ) -> None:
        """Begins a stream in a row.

        Parameters:
            peer: its IPv4 address as a number, and its port.
            session: drawn anew for each stream and start, and not 0.
            first: its first sequence, above those of the stream's earlier lives.
            every: it sends in every so many ticks, from one after `tick` on.
        """

    def restart(self, row: int, *, session: int, first: int, by_nic: bool) -> None:
        """Begins a stream anew, at the same rate.

        Parameters:
            session, first: as of `begin`.
            by_nic: own stamps are those of the NIC from now on, else the kernel's. Packets without one have none.
        """

    def end(self, row: int) -> None:
        """Ends the stream of a row."""

    def change_rate(self, row: int, every: int, tick: int, *, in_use: bool, coded_every: int) -> None:
        """Gives a stream another rate, as `SendSchedule.change` does."""

    def set_sizes(self, own_bytes: NDArray[np.int64]) -> None:
        """Sets the largest packet of this end's device, per row; 0: unknown, so nothing is padded or asked to be."""

    def set_wishes(self, mesh_ms: NDArray[np.int64]) -> None:
        """Sets the time between two coded pairs that this end wants, per row."""

    def forget_wishes(self, row: Rows) -> None:
        """Forgets how often the peers of these rows want coded pairs, as they are gone."""

    # -- a tick -------------------------------------------------------------------------------------------------------

    def listen(self, now_ns: int) -> None:
        """Reads the sockets until they are empty, then judges which paths are silent."""

    def send(self, tick: int) -> int:
        """Sends what is due in a tick, and returns how many probes that were; ticks may be missed."""

    def next_silence_ns(self) -> int | None:
        """The latest time to listen again, so that a path that falls silent is noticed at once."""

    # -- by itself ----------------------------------------------------------------------------------------------------

    def run(self, start_ns: int, changed_fd: int, realtime_share: float) -> None:
        """Listens and sends in each tick until `stop`, for the thread that calls it. Python runs on meanwhile.

        Parameters:
            start_ns: when tick 0 is, of CLOCK_MONOTONIC.
            changed_fd: an eventfd that is written when a path has fallen silent or speaks again.
            realtime_share: where the thread may have real-time priority, it has it until it takes more than this share
                of a processor in a second. 0: it does not ask.

        Raises:
            OSError: the kernel grants no timer, or a wait failed.
        """

    def stop(self) -> None:
        """Ends `run`."""

    def realtime(self) -> bool | None:
        """Whether the thread has real-time priority; None: it took too much, and has it no more."""

    def take_late_ns(self) -> int:
        """By how much the latest tick since the last call was late, or how long the longest one took."""

    # -- results ------------------------------------------------------------------------------------------------------

    def take_changes(self) -> SilenceChanges:
        """The paths that are silent and were not told to be, and those that are silent no more."""

    def take_met(self) -> Rows:
        """The rows whose peers were met since the last call: they are new, or have started anew."""

    def take_refused(self) -> Rows:
        """The places at which the kernel found a packet too large since the last call."""

    def take_missing_stamps(self) -> list[tuple[int, int]]:
        """The places found since the last call that have no stamps, and for which of `timestamp_check.DIRECTIONS`."""

    def take_report(self) -> Report:
        """What the streams did since the last report."""

    def stamps_of(self, rows: Rows) -> Completed:
        """The probes heard lately on these rows of which both stamps are known, taken or not, and also padded ones."""

    def peers_mesh_ms(self) -> NDArray[np.int64]:
        """How often the peer wants coded pairs, per row; 0: it does not count the stream to the mesh."""

    def promised_us(self) -> NDArray[np.int64]:
        """Within what time the peer promised its next probe, per row; 0: nothing was heard."""

    def heard_last_ns(self) -> Times:
        """As in `Report`, without beginning a new one."""

    def kinds(self) -> NDArray[np.int64]:
        """The worse kind of stamp of each row's two ends, as an index of `KINDS`."""

    def counts(self) -> Mapping[str, int]:
        """Packets so far that were foreign, unsent or dropped, by these names."""
