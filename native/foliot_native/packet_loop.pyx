"""The packet loop of a probe, compiled: what happens to each packet, without Python and without its lock.

It does what `foliot_probe.numpy_loop.NumpyPacketLoop` does, its twin; that one's parts say why each step is as it is.
`listen` and `send` may be called in turn. Or `run` does both on a timer, in a thread that never waits for Python.

Every method takes a mutex that passes the thread's priority on to its holder. So a thread with real-time priority does
not wait for one that has none and no processor. 64-bit Linux and little-endian machines only.
"""

from libc.errno cimport EINTR, EMSGSIZE, errno
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from foliot_native.host_clock cimport (
    CLOCK_MONOTONIC,
    CLOCK_MONOTONIC_RAW,
    CLOCK_REALTIME,
    CLOCK_THREAD_CPUTIME_ID,
    Injected,
    RealtimeMap,
    clock_ns,
    skewed,
    timespec,
)

import numpy as np


cdef extern from *:
    """
    #ifdef __clang__
    #define FOLIOT_COMPILER __VERSION__
    #else
    #define FOLIOT_COMPILER "gcc " __VERSION__
    #endif
    """
    const char *FOLIOT_COMPILER

COMPILER = FOLIOT_COMPILER.decode()


cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len


cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr

    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr

    uint32_t ntohl(uint32_t value)
    uint32_t htonl(uint32_t value)
    uint16_t htons(uint16_t value)
    int IPPROTO_IP
    int IP_RECVERR


cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        void *msg_name
        uint32_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags

    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len

    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type

    cmsghdr *CMSG_FIRSTHDR(msghdr *message)
    cmsghdr *CMSG_NXTHDR(msghdr *message, cmsghdr *control)
    unsigned char *CMSG_DATA(cmsghdr *control)
    int recvmmsg(int fd, mmsghdr *messages, unsigned int count, int flags, void *timeout)
    int sendmmsg(int fd, mmsghdr *messages, unsigned int count, int flags)
    int AF_INET
    int MSG_DONTWAIT
    int MSG_TRUNC
    int MSG_ERRQUEUE
    int SOL_SOCKET
    int SO_SNDBUF


cdef extern from "<linux/errqueue.h>" nogil:
    struct sock_extended_err:
        uint32_t ee_errno
        uint8_t ee_origin
        uint8_t ee_type
        uint8_t ee_code
        uint8_t ee_pad
        uint32_t ee_info
        uint32_t ee_data


cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)


cdef extern from "<linux/sockios.h>" nogil:
    unsigned long SIOCOUTQ


cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents

    int poll(pollfd *fds, unsigned long count, int timeout_ms)
    int ppoll(pollfd *fds, unsigned long count, const timespec *timeout, const void *mask)
    short POLLIN
    short POLLERR


cdef extern from "<time.h>" nogil:
    struct itimerspec:
        timespec it_interval
        timespec it_value


cdef extern from "<sched.h>" nogil:
    struct sched_param:
        int sched_priority

    int sched_setscheduler(int thread, int policy, const sched_param *parameters)
    int SCHED_FIFO
    int SCHED_OTHER
    int SCHED_RESET_ON_FORK


cdef extern from "<sys/timerfd.h>" nogil:
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec *value, itimerspec *before)
    int TFD_NONBLOCK
    int TFD_CLOEXEC
    int TFD_TIMER_ABSTIME


cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_NONBLOCK
    int EFD_CLOEXEC


cdef extern from "<unistd.h>" nogil:
    long read(int fd, void *buffer, size_t size)
    long write(int fd, const void *buffer, size_t size)
    int close(int fd)


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass

    ctypedef struct pthread_mutexattr_t:
        pass

    int pthread_mutexattr_init(pthread_mutexattr_t *attributes)
    int pthread_mutexattr_setprotocol(pthread_mutexattr_t *attributes, int protocol)
    int pthread_mutexattr_destroy(pthread_mutexattr_t *attributes)
    int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int PTHREAD_PRIO_INHERIT


# -- what foliot_probe.core says, see there -------------------------------------------------------------------------

cdef enum:
    _PREDECESSORS = 4
    _ECHOES = 8
    _DEPTH = 128
    _ROW_BITS = 18
    _ROW_MASK = (1 << 18) - 1
    _IN_USE = 1
    _COUNT_SHIFT = 1
    _FULL_COUNTS = 127
    _MOST_BACK = 8
    _IDLE_US = 20_000_000
    _LEAST_BYTES = 576
    _MOST_BYTES = 9_216
    _IP_UDP_BYTES = 28
    _PROBE_BYTES = 144
    _HARDWARE = 0
    _KERNEL = 1
    _USER = 2
    _FAREWELL = 4
    _FULL_ROUND = 1
    _INTERVALS = 3
    _PATIENCE = 64
    _SO_TIMESTAMPING = 37
    _SO_RXQ_OVFL = 40
    _ORIGIN_TIMESTAMPING = 4
    _LEFT = 0
    _CAME = 1
    _PACKETS = 0
    _STAMPED = 1
    _ODD = 2
    _LIES = 0
    _LOST = 1
    _EIGHTHS = 8
    _SLOTS = 512
    _AT_ONCE = 4_096
    _PAYLOAD_BYTES = 256
    _CONTROL_BYTES = 128
    _PROBES_A_ROUND = 3
    _HELD_UP = 4
    _CLOGGED_PART = 4

cdef uint32_t _MAGIC = 0x31706F46  # "Fop1"
cdef int64_t _HIGHEST_SEQUENCE = <int64_t>1 << 62
cdef int64_t _NEVER_SENT = -(<int64_t>1 << 62)
cdef int64_t _NEVER = 0x7FFFFFFFFFFFFFFF
cdef int64_t _NEVER_DUE = <int64_t>1 << 62
cdef int64_t _FAR_NS = <int64_t>1 << 62
cdef int64_t _FAR_S = 4_611_686_018
cdef int64_t _STALL_NS = 50_000_000
cdef int64_t _GRACE_NS = 10_000_000
cdef int64_t _SECOND_NS = 1_000_000_000
cdef int64_t _EARLY_NS = 250_000
cdef int64_t _LATE_NS = 2_000_000


cdef packed struct ProbePacket:
    uint32_t magic
    uint8_t kind
    uint8_t use
    uint16_t mesh_ms
    uint32_t row
    uint32_t interval_us
    uint64_t session
    int64_t sequence
    int64_t transmit_ns[_PREDECESSORS]
    uint64_t peer_session
    int64_t heard
    int64_t receive_ns[_ECHOES]


cdef struct Cell:  # a probe of a stream and its stamps
    int64_t sequence
    int64_t transmit_ns
    int64_t receive_ns
    int64_t host_ns  # when it left, by the host's clock; 0: it did not yet
    uint8_t full
    uint8_t ready
    uint8_t listed  # it is in its ring's list of those that became ready


cdef struct Ring:  # one direction of every stream
    Cell *cells
    int64_t *listed
    int64_t count


cdef struct Row:  # a stream
    uint64_t session
    uint64_t peer_session
    int64_t next
    int64_t highest
    int64_t counted
    int64_t mesh_ms
    int64_t wish_ms
    int64_t promised_us
    int64_t own_bytes
    int64_t peer_bytes
    int64_t full_bytes
    int64_t full_sent
    int64_t said
    int64_t said_counted
    int64_t full_received
    int64_t sent
    int64_t received
    int64_t left_sequence
    int64_t left_ns
    int64_t left
    int64_t left_before
    int64_t waiting  # probes given to the kernel since one left
    int64_t heard_last_ns
    int64_t announced
    int64_t every
    int64_t due
    int64_t coded_every
    int64_t round
    int64_t farewell
    int64_t patience_ns
    int64_t deadline_ns
    int64_t batch  # the last one in which its peer was met
    uint64_t batch_session
    int64_t batch_first
    sockaddr_in address
    int32_t place
    uint8_t peer_kind
    uint8_t said_count  # the count of padded probes sent, as a probe says it
    bint by_nic  # its own stamps are those of the NIC
    bint owns_address
    bint in_use
    bint met
    bint silent
    bint told_silent


cdef struct Place:  # a socket
    int fd
    int64_t room  # the bytes of its send buffer
    int kinds[2]  # 0: too early to say
    int64_t unstamped[2]
    bint missing[2]  # since `take_missing_stamps`
    int64_t sent
    int kind
    int64_t dropped
    bint refused
    int64_t packets  # of a batch
    int64_t stamped
    bint watched  # its NIC has a clock
    int64_t shift_ns  # of that, minus local time; 0: not known
    int64_t counts[2][3]
    Injected nic  # what a lab gives it
    const int64_t *faults
    uint64_t turn


cdef struct Arrival:  # a datagram
    ProbePacket *probe
    int64_t stamp_ns
    int64_t nic_ns  # the NIC's stamp; 0: none
    int64_t age_ns
    uint32_t address
    uint32_t length
    int32_t place
    int32_t row
    bint known


cdef struct Slot:  # a probe to send
    int32_t row
    int32_t place
    int64_t turn
    bint padded
    bint went


cdef inline bint _is_probe(ProbePacket *probe, uint32_t length) noexcept nogil:
    cdef int each
    if length < _PROBE_BYTES or length > _MOST_BYTES or probe.magic != _MAGIC or probe.kind > _USER:
        return False
    if probe.interval_us < 1 or probe.sequence < 0 or probe.sequence >= _HIGHEST_SEQUENCE:
        return False
    if probe.heard < -1 or probe.heard > _HIGHEST_SEQUENCE - 2:
        return False
    for each in range(_PREDECESSORS):
        if probe.transmit_ns[each] <= -_FAR_NS or probe.transmit_ns[each] >= _FAR_NS:
            return False
    for each in range(_ECHOES):
        if probe.receive_ns[each] <= -_FAR_NS or probe.receive_ns[each] >= _FAR_NS:
            return False
    return True


cdef inline uint8_t _said(int64_t full_sent) noexcept nogil:
    return <uint8_t>((1 + full_sent % _FULL_COUNTS) << _COUNT_SHIFT)


# -- rings ----------------------------------------------------------------------------------------------------------

cdef inline Cell *_cell(Ring *ring, int64_t row, int64_t sequence) noexcept nogil:
    return &ring.cells[row * _DEPTH + (sequence & (_DEPTH - 1))]


cdef void _forget(Ring *ring, int64_t row) noexcept nogil:
    cdef int64_t each
    cdef Cell *cell
    for each in range(row * _DEPTH, (row + 1) * _DEPTH):
        cell = &ring.cells[each]
        cell.sequence = _NEVER_SENT
        cell.ready = False


cdef inline bint _place(Ring *ring, int64_t row, int64_t sequence, bint full, int64_t receive_ns) noexcept nogil:
    cdef Cell *cell = _cell(ring, row, sequence)
    if cell.sequence >= sequence:
        return False
    cell.sequence = sequence
    cell.transmit_ns = 0
    cell.receive_ns = receive_ns
    cell.host_ns = 0
    cell.full = full
    cell.ready = False
    return True


cdef inline void _complete(Ring *ring, Cell *cell) noexcept nogil:
    cell.ready = cell.transmit_ns != 0 and cell.receive_ns != 0
    if cell.ready and not cell.listed:
        cell.listed = True
        ring.listed[ring.count] = cell - ring.cells
        ring.count += 1


cdef inline bint _note_transmit(Ring *ring, int64_t row, int64_t sequence, int64_t stamp_ns) noexcept nogil:
    cdef Cell *cell = _cell(ring, row, sequence)
    if stamp_ns == 0 or cell.sequence != sequence or cell.transmit_ns != 0:
        return False
    cell.transmit_ns = stamp_ns
    _complete(ring, cell)
    return True


cdef inline void _note_receive(Ring *ring, int64_t row, int64_t sequence, int64_t stamp_ns) noexcept nogil:
    cdef Cell *cell = _cell(ring, row, sequence)
    if stamp_ns != 0 and cell.sequence == sequence and cell.receive_ns == 0:
        cell.receive_ns = stamp_ns
        _complete(ring, cell)


cdef inline bint _leave(Ring *ring, int64_t row, int64_t sequence, int64_t host_ns, bint by_nic) noexcept nogil:
    """Notes when a probe left, by the host's clock; whether that is new. It is its stamp unless the NIC's are wanted."""
    cdef Cell *cell = _cell(ring, row, sequence)
    if host_ns == 0 or cell.sequence != sequence or cell.host_ns != 0:
        return False
    cell.host_ns = host_ns
    if not by_nic:
        cell.transmit_ns = host_ns
        _complete(ring, cell)
    return True


cdef inline bint _is_odd(int64_t gap_ns) noexcept nogil:
    return gap_ns < -_EARLY_NS or gap_ns > _LATE_NS


cdef bint _grow_ring(Ring *ring, int64_t before, int64_t rows) noexcept nogil:
    cdef Cell *cells = <Cell *>realloc(ring.cells, rows * _DEPTH * sizeof(Cell))
    if cells is NULL:
        return False
    ring.cells = cells
    cdef int64_t *listed = <int64_t *>realloc(ring.listed, rows * _DEPTH * sizeof(int64_t))
    if listed is NULL:
        return False
    ring.listed = listed
    memset(cells + before * _DEPTH, 0, (rows - before) * _DEPTH * sizeof(Cell))
    cdef int64_t row
    for row in range(before, rows):
        _forget(ring, row)
    return True


cdef class PacketLoop:
    """The probes of a node, see `foliot_probe.packet_loop.PacketLoop`.

    Parameters:
        places: the number of sockets.
        rows: of the stream table.
        tick_ns: the time between two ticks.
        full_every: in every so many rounds a path's probe is padded; 0: never.
        now_ns: the monotonic time.
        seed: of what is by chance, which is the order of probes alone.
        error: the error that a lab injects in the host's clock, as arrays; None: there is none.
        types: what makes results of their fields: changes, reports, and probes completed.
    """

    runs = True

    cdef pthread_mutex_t _mutex
    cdef int64_t _rows
    cdef Row *_row
    cdef Ring _outgoing
    cdef Ring _incoming
    cdef int _places
    cdef Place *_place
    cdef pollfd *_polled
    cdef bint _settled  # all places have the kernel's stamps
    cdef int64_t *_found  # rows by place and address: an open table of row + 1, 0: free
    cdef int64_t _found_mask
    cdef int64_t _tick_ns
    cdef int64_t _full_every
    cdef int64_t _read_ns
    cdef int64_t _listened_ns
    cdef int64_t _batch
    cdef int64_t _foreign
    cdef int64_t _unsent
    cdef int64_t _dropped
    cdef uint64_t _random
    cdef RealtimeMap _ruler
    cdef Injected _error
    cdef object _kept  # what `_error` and the places' errors point to
    cdef bint _watches  # a NIC has a clock
    cdef object _changes_type
    cdef object _report_type
    cdef object _completed_type
    cdef int _stop_fd
    cdef int64_t _late_ns
    cdef int _priority  # of the thread: 1: real-time, 0: none, -1: it was taken away
    cdef int64_t _metered_ns
    cdef int64_t _used_ns
    # What is received into.
    cdef mmsghdr *_in_headers
    cdef sockaddr_in *_in_names
    cdef iovec *_in_vectors
    cdef uint8_t *_in_payloads
    cdef uint8_t *_in_controls
    cdef Arrival *_arrivals
    cdef int64_t _arrivals_room
    # What is sent from.
    cdef mmsghdr *_out_headers
    cdef iovec *_out_vectors
    cdef ProbePacket *_out_probes
    cdef Slot *_slots
    cdef Slot *_sorted
    cdef int64_t *_order
    cdef int64_t *_starts
    cdef int64_t _slot_count
    cdef uint8_t *_zeros

    def __cinit__(self, int places, int64_t rows, *, int64_t tick_ns, int64_t full_every, int64_t now_ns, uint64_t seed, error, types):
        cdef pthread_mutexattr_t attributes
        self._stop_fd = -1
        pthread_mutexattr_init(&attributes)
        pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT)
        pthread_mutex_init(&self._mutex, &attributes)
        pthread_mutexattr_destroy(&attributes)
        self._tick_ns, self._full_every, self._read_ns = tick_ns, full_every, now_ns
        self._changes_type, self._report_type, self._completed_type = types
        self._random = seed | 1
        self._ruler = RealtimeMap(clock_ns(CLOCK_MONOTONIC_RAW), clock_ns(CLOCK_REALTIME))
        self._ruler.read()
        self._kept = []
        self._inject(&self._error, error)
        self._listened_ns = self._local_ns()
        self._stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        self._places = places
        self._place = <Place *>calloc(max(places, 1), sizeof(Place))
        self._polled = <pollfd *>calloc(max(places, 1), sizeof(pollfd))
        self._in_headers = <mmsghdr *>calloc(_SLOTS, sizeof(mmsghdr))
        self._in_names = <sockaddr_in *>calloc(_SLOTS, sizeof(sockaddr_in))
        self._in_vectors = <iovec *>calloc(_SLOTS, sizeof(iovec))
        self._in_payloads = <uint8_t *>calloc(_SLOTS, _PAYLOAD_BYTES)
        self._in_controls = <uint8_t *>calloc(_SLOTS, _CONTROL_BYTES)
        self._zeros = <uint8_t *>calloc(1, _MOST_BYTES)
        self._starts = <int64_t *>calloc(places * _PROBES_A_ROUND + 1, sizeof(int64_t))
        if (
            self._place is NULL or self._polled is NULL or self._in_headers is NULL or self._in_names is NULL
            or self._in_vectors is NULL or self._in_payloads is NULL or self._in_controls is NULL
            or self._zeros is NULL or self._starts is NULL or self._stop_fd < 0
        ):
            raise MemoryError("no memory for a packet loop, or no descriptor")
        cdef int each
        for each in range(places):
            self._place[each].fd = self._polled[each].fd = -1
            self._place[each].kind = _USER
        for each in range(_SLOTS):
            self._in_vectors[each].iov_base = self._in_payloads + each * _PAYLOAD_BYTES
            self._in_vectors[each].iov_len = _PAYLOAD_BYTES
            self._in_headers[each].msg_hdr.msg_name = &self._in_names[each]
            self._in_headers[each].msg_hdr.msg_iov = &self._in_vectors[each]
            self._in_headers[each].msg_hdr.msg_iovlen = 1
            self._in_headers[each].msg_hdr.msg_control = self._in_controls + each * _CONTROL_BYTES
        self._make_room(_SLOTS)
        self._grow(rows)

    def __dealloc__(self):
        if self._stop_fd >= 0:
            close(self._stop_fd)
        pthread_mutex_destroy(&self._mutex)
        for memory in (
            <size_t>self._row, <size_t>self._outgoing.cells, <size_t>self._outgoing.listed,
            <size_t>self._incoming.cells, <size_t>self._incoming.listed, <size_t>self._place, <size_t>self._polled,
            <size_t>self._found, <size_t>self._in_headers, <size_t>self._in_names, <size_t>self._in_vectors,
            <size_t>self._in_payloads, <size_t>self._in_controls, <size_t>self._arrivals, <size_t>self._out_headers,
            <size_t>self._out_vectors, <size_t>self._out_probes, <size_t>self._slots, <size_t>self._sorted,
            <size_t>self._order, <size_t>self._starts, <size_t>self._zeros,
        ):
            free(<void *><size_t>memory)

    cdef _inject(self, Injected *into, error):
        cdef double[::1] walk_ns
        cdef const int64_t[::1] stepped_ns
        memset(into, 0, sizeof(Injected))
        if error is None:
            return
        walk_ns = error.walk_ns
        stepped_ns = error.stepped_ns
        if stepped_ns.shape[0] < 1:
            raise ValueError("stepped_ns: one value is wanted")
        self._kept.append((walk_ns, stepped_ns))
        into.present = True
        into.start_ns, into.offset_ns = error.start_ns, error.offset_ns
        into.rate_ppb = error.rate_ppb
        into.seconds = walk_ns.shape[0]
        if walk_ns.shape[0]:
            into.walk_ns = &walk_ns[0]
        into.stepped_ns = &stepped_ns[0]

    cdef int64_t _local_ns(self) noexcept nogil:
        return skewed(&self._error, clock_ns(CLOCK_MONOTONIC_RAW))

    def close(self):
        """Reads no socket any more. It closes none."""
        pthread_mutex_lock(&self._mutex)
        cdef int each
        for each in range(self._places):
            self._place[each].fd = self._polled[each].fd = -1
        pthread_mutex_unlock(&self._mutex)

    def add_socket(self, int place, opened):
        """See the protocol."""
        cdef int fd = opened.fileno()
        cdef int64_t room = opened.getsockopt(SOL_SOCKET, SO_SNDBUF)
        self._check_place(place)
        pthread_mutex_lock(&self._mutex)
        self._place[place].fd = self._polled[place].fd = fd
        self._place[place].room = room
        self._polled[place].events = POLLIN | POLLERR
        pthread_mutex_unlock(&self._mutex)

    def watch_nic(self, int place, injected):
        """See the protocol."""
        cdef const int64_t[::1] faults
        self._check_place(place)
        pthread_mutex_lock(&self._mutex)
        try:
            if injected is not None:
                faults = injected.faults
                if faults.shape[0] < 2:
                    raise ValueError("faults: two values at least are wanted")
                self._inject(&self._place[place].nic, injected.error)
                self._kept.append(faults)
                self._place[place].faults = &faults[0]
            self._watches = self._place[place].watched = True
        finally:
            pthread_mutex_unlock(&self._mutex)

    def set_shifts(self, shift_ns):
        """See the protocol."""
        cdef int64_t[::1] shifts = np.ascontiguousarray(shift_ns, np.int64)
        cdef int each
        if shifts.shape[0] != self._places:
            raise ValueError(f"{shifts.shape[0]} values for {self._places} places")
        pthread_mutex_lock(&self._mutex)
        for each in range(self._places):
            self._place[each].shift_ns = shifts[each]
        pthread_mutex_unlock(&self._mutex)

    def take_stamp_counts(self):
        """See the protocol."""
        found = np.empty((self._places, 2, 3), np.int64)
        cdef int64_t[:, :, ::1] counts = found
        cdef int each
        cdef int direction
        cdef int what
        pthread_mutex_lock(&self._mutex)
        for each in range(self._places):
            for direction in range(2):
                for what in range(3):
                    counts[each, direction, what] = self._place[each].counts[direction][what]
                    self._place[each].counts[direction][what] = 0
        pthread_mutex_unlock(&self._mutex)
        return found

    def _check_place(self, int64_t place):
        if not 0 <= place < self._places:
            raise IndexError(f"place {place} of {self._places}")

    def _check_row(self, int64_t row):
        if not 0 <= row < self._rows:
            raise IndexError(f"row {row} of {self._rows}")

    # -- what there is to probe -------------------------------------------------------------------------------------

    def grow(self, int64_t rows):
        """See the protocol."""
        pthread_mutex_lock(&self._mutex)
        try:
            self._grow(rows)
        finally:
            pthread_mutex_unlock(&self._mutex)

    def _grow(self, int64_t rows):
        cdef int64_t before = self._rows
        cdef int64_t row
        if rows <= before:
            return
        if rows > 1 << _ROW_BITS:
            raise MemoryError(f"a node sends {1 << _ROW_BITS} streams at most, not {rows}")
        if not _grow_ring(&self._outgoing, before, rows) or not _grow_ring(&self._incoming, before, rows):
            raise MemoryError(f"no memory for {rows} streams")
        cdef int64_t slots = rows * _PROBES_A_ROUND
        self._row = <Row *>_resized(self._row, rows * sizeof(Row))
        self._slots = <Slot *>_resized(self._slots, slots * sizeof(Slot))
        self._sorted = <Slot *>_resized(self._sorted, slots * sizeof(Slot))
        self._order = <int64_t *>_resized(self._order, slots * sizeof(int64_t))
        self._out_headers = <mmsghdr *>_resized(self._out_headers, slots * sizeof(mmsghdr))
        self._out_vectors = <iovec *>_resized(self._out_vectors, 2 * slots * sizeof(iovec))
        self._out_probes = <ProbePacket *>_resized(self._out_probes, slots * sizeof(ProbePacket))
        memset(self._row + before, 0, (rows - before) * sizeof(Row))
        for row in range(before, rows):
            self._row[row].highest = self._row[row].counted = -1
            self._row[row].announced = self._row[row].every = 1
            self._row[row].due = self._row[row].coded_every = _NEVER_DUE
            self._row[row].deadline_ns = _NEVER
            self._row[row].peer_kind = _USER
            self._row[row].left_before = -1
        self._rows = rows
        self._rehash()

    cdef void _hash(self, int64_t row) noexcept nogil:
        cdef int64_t place = self._row[row].place
        cdef uint32_t address = ntohl(self._row[row].address.sin_addr.s_addr)
        cdef int64_t slot = self._slot(place, address)
        if self._found[slot]:
            self._row[self._found[slot] - 1].owns_address = False
        self._found[slot] = row + 1
        self._row[row].owns_address = True

    cdef int64_t _slot(self, int64_t place, uint32_t address) noexcept nogil:
        """The slot of a place and address in the table, or the free one where it would be."""
        cdef uint64_t key = (<uint64_t>place << 32) | address
        cdef int64_t slot = <int64_t>((key * <uint64_t>0x9E3779B97F4A7C15) >> 33) & self._found_mask
        cdef Row *row
        while self._found[slot]:
            row = &self._row[self._found[slot] - 1]
            if row.place == place and ntohl(row.address.sin_addr.s_addr) == address:
                return slot
            slot = (slot + 1) & self._found_mask
        return slot

    def _rehash(self):
        cdef int64_t slots = 64
        cdef int64_t row
        while slots < 4 * self._rows:
            slots *= 2
        self._found = <int64_t *>_resized(self._found, slots * sizeof(int64_t))
        memset(self._found, 0, slots * sizeof(int64_t))
        self._found_mask = slots - 1
        for row in range(self._rows):
            if self._row[row].owns_address:
                self._hash(row)

    def begin(self, int64_t row, int place, peer, *, uint64_t session, int64_t first, int64_t every, int64_t tick):
        """See the protocol."""
        cdef uint32_t address = peer[0]
        cdef uint16_t port = peer[1]
        self._check_row(row)
        self._check_place(place)
        if every < 1:
            raise ValueError("a tick at least is wanted")
        pthread_mutex_lock(&self._mutex)
        cdef Row *each = &self._row[row]
        each.address.sin_family = AF_INET
        each.address.sin_port = htons(port)
        each.address.sin_addr.s_addr = htonl(address)
        each.place = place
        self._hash(row)
        each.by_nic = False
        self._open(row, session, first)
        each.announced = each.every = every
        each.in_use = False
        each.coded_every = _NEVER_DUE
        each.due = tick + 1 + row % every
        each.round = row
        each.farewell = 0
        pthread_mutex_unlock(&self._mutex)

    def restart(self, int64_t row, *, uint64_t session, int64_t first, bint by_nic):
        """See the protocol."""
        self._check_row(row)
        pthread_mutex_lock(&self._mutex)
        self._row[row].by_nic = by_nic
        self._open(row, session, first)
        pthread_mutex_unlock(&self._mutex)

    def end(self, int64_t row):
        """See the protocol."""
        self._check_row(row)
        pthread_mutex_lock(&self._mutex)
        cdef Row *each = &self._row[row]
        each.by_nic = False
        self._open(row, 0, 0)
        each.due = _NEVER_DUE
        each.deadline_ns = _NEVER
        each.silent = each.told_silent = False
        each.sent = each.heard_last_ns = 0
        if each.owns_address:
            each.owns_address = False
            self._rehash()
        pthread_mutex_unlock(&self._mutex)

    cdef void _open(self, int64_t row, uint64_t session, int64_t first) noexcept nogil:
        cdef Row *each = &self._row[row]
        self._forget_peer(row)
        _forget(&self._outgoing, row)
        each.session = session
        each.next = first
        each.met = False
        each.left_sequence = each.left_ns = each.left = each.waiting = 0
        each.left_before = first - 1

    cdef void _forget_peer(self, int64_t row) noexcept nogil:
        cdef Row *each = &self._row[row]
        _forget(&self._incoming, row)
        each.peer_session = 0
        each.highest = each.counted = -1
        each.received = 0
        each.said = each.said_counted = each.full_received = 0
        each.peer_bytes = each.full_bytes = 0
        each.said_count = 0
        each.mesh_ms = each.promised_us = 0
        each.peer_kind = _USER

    def change_rate(self, int64_t row, int64_t every, int64_t tick, *, bint in_use, int64_t coded_every):
        """See the protocol."""
        self._check_row(row)
        if every < 1:
            raise ValueError("a tick at least is wanted")
        pthread_mutex_lock(&self._mutex)
        cdef Row *each = &self._row[row]
        each.in_use = in_use
        each.coded_every = coded_every if coded_every else _NEVER_DUE
        if every != each.announced:
            each.announced = every
            if every > each.every:
                each.farewell = _FAREWELL
            else:
                each.every = every
                each.farewell = 0
                each.due = min(each.due, tick + 1 + row % every)
        pthread_mutex_unlock(&self._mutex)

    def set_sizes(self, own_bytes):
        """See the protocol."""
        cdef int64_t[::1] sizes = np.ascontiguousarray(own_bytes, np.int64)
        cdef int64_t row
        self._check_rows(sizes.shape[0])
        pthread_mutex_lock(&self._mutex)
        for row in range(self._rows):
            self._row[row].own_bytes = sizes[row]
            self._agree(&self._row[row])
        pthread_mutex_unlock(&self._mutex)

    def _check_rows(self, int64_t count):
        if count != self._rows:
            raise ValueError(f"{count} values for {self._rows} rows")

    cdef void _agree(self, Row *row) noexcept nogil:
        """Full size is what both ends carry."""
        cdef int64_t least = min(row.own_bytes, row.peer_bytes)
        row.full_bytes = min(least, _MOST_BYTES) if least >= _LEAST_BYTES else 0
        row.said_count = _said(row.full_sent) if row.full_bytes > 0 else 0

    def set_wishes(self, mesh_ms):
        """See the protocol."""
        cdef int64_t[::1] wishes = np.ascontiguousarray(mesh_ms, np.int64)
        cdef int64_t row
        self._check_rows(wishes.shape[0])
        pthread_mutex_lock(&self._mutex)
        for row in range(self._rows):
            self._row[row].wish_ms = wishes[row]
        pthread_mutex_unlock(&self._mutex)

    def forget_wishes(self, rows):
        """See the protocol."""
        wanted = np.asarray(rows).tolist()
        for row in wanted:
            self._check_row(row)
        pthread_mutex_lock(&self._mutex)
        for row in wanted:
            self._row[<int64_t>row].mesh_ms = 0
        pthread_mutex_unlock(&self._mutex)

    # -- hearing ----------------------------------------------------------------------------------------------------

    def listen(self, int64_t now_ns):
        """See the protocol."""
        with nogil:
            pthread_mutex_lock(&self._mutex)
            self._listen(now_ns)
            pthread_mutex_unlock(&self._mutex)

    cdef void _listen(self, int64_t now_ns) noexcept nogil:
        self._listened_ns = self._local_ns()
        if self._places and poll(self._polled, self._places, 0) > 0:
            self._read_queues(True, now_ns)
            self._read_queues(False, now_ns)
        self._judge(now_ns)

    cdef void _read_queues(self, bint errors, int64_t now_ns) noexcept nogil:
        """Reads all error queues, or all sockets, each until it is dry or has given enough."""
        cdef int flags = MSG_DONTWAIT | (MSG_ERRQUEUE if errors else MSG_TRUNC)
        cdef short awaited = POLLERR if errors else POLLIN | POLLERR
        cdef int place
        cdef int room
        cdef int got
        cdef int each
        cdef int count = 0
        cdef int left
        for place in range(self._places):
            if self._place[place].fd < 0 or not self._polled[place].revents & awaited:
                continue
            left = _AT_ONCE
            while left > 0:
                room = _SLOTS - count
                for each in range(count, _SLOTS):
                    self._in_headers[each].msg_hdr.msg_namelen = sizeof(sockaddr_in)
                    self._in_headers[each].msg_hdr.msg_controllen = _CONTROL_BYTES
                got = max(0, recvmmsg(self._place[place].fd, self._in_headers + count, room, flags, NULL))
                left -= got
                for each in range(count, count + got):
                    self._arrivals[each].place = place
                count += got
                if got < room:
                    break
                self._take(errors, count, now_ns)
                count = 0
        if count:
            self._take(errors, count, now_ns)

    cdef void _take(self, bint errors, int count, int64_t now_ns) noexcept nogil:
        """Takes what `recvmmsg` wrote: own probes that came back, or what others sent."""
        cdef int each
        cdef int kept = 0
        cdef int64_t stamp_ns
        cdef int64_t latest_ns = 0
        cdef int64_t dropped
        cdef bint is_stamp
        cdef ProbePacket *probe
        for each in range(count):
            self._arrivals[each].stamp_ns = self._stamp(each, &self._arrivals[each].nic_ns, &dropped, &is_stamp)
            latest_ns = max(latest_ns, self._arrivals[each].stamp_ns)
            if errors:
                self._arrivals[each].known = is_stamp
            else:
                self._excuse_dropped(self._arrivals[each].place, dropped, now_ns)
        self._ruler.refresh(latest_ns)
        for each in range(count):
            stamp_ns = self._arrivals[each].stamp_ns
            if stamp_ns:
                self._arrivals[each].stamp_ns = skewed(&self._error, self._ruler.map(stamp_ns))
                if self._place[self._arrivals[each].place].faults is not NULL:
                    self._arrivals[each].nic_ns = self._injected_ns(&self._arrivals[each])
            if errors:
                # Of a packet with stamps of both, the NIC's comes by itself, and has no stamp of the kernel's.
                self._arrivals[each].probe = self._own_probe(each) if self._arrivals[each].known else NULL
                if self._arrivals[each].probe is not NULL and (stamp_ns or not self._arrivals[each].nic_ns):
                    self._depart(
                        self._arrivals[each].place, self._arrivals[each].probe, self._arrivals[each].stamp_ns, 0
                    )
            else:
                self._arrivals[each].probe = <ProbePacket *>(self._in_payloads + each * _PAYLOAD_BYTES)
                self._arrivals[each].address = ntohl(self._in_names[each].sin_addr.s_addr)
                self._arrivals[each].length = self._in_headers[each].msg_len
        self._ruler.settle()
        if not errors:
            self._hear(count, self._local_ns(), now_ns)
        elif self._watches:
            for each in range(count):
                if self._arrivals[each].probe is not NULL and self._arrivals[each].nic_ns:
                    self._pass_nic(self._arrivals[each].place, self._arrivals[each].probe, self._arrivals[each].nic_ns)

    cdef int64_t _injected_ns(self, Arrival *arrival) noexcept nogil:
        """The stamp of the NIC of a lab's host; 0: it lost it."""
        cdef Place *place = &self._place[arrival.place]
        place.turn += 1
        if <int64_t>(place.turn % _EIGHTHS) < place.faults[_LOST]:
            return 0
        return skewed(&place.nic, arrival.stamp_ns) + place.faults[_LIES]

    cdef int64_t _stamp(self, int each, int64_t *nic_ns, int64_t *dropped, bint *is_stamp) noexcept nogil:
        """The kernel's stamp of a packet; 0: none. And the NIC's, likewise, and what else the kernel says of it."""
        cdef msghdr *message = &self._in_headers[each].msg_hdr
        cdef cmsghdr *control = CMSG_FIRSTHDR(message)
        cdef int64_t stamp_ns = 0
        cdef timespec stamps[3]  # of struct scm_timestamping: the kernel's, one of former kernels, and the NIC's
        cdef uint32_t count
        cdef sock_extended_err error
        dropped[0] = nic_ns[0] = 0
        is_stamp[0] = False
        while control is not NULL:
            if control.cmsg_level == SOL_SOCKET and control.cmsg_type == _SO_TIMESTAMPING:
                memcpy(stamps, CMSG_DATA(control), sizeof(stamps))
                stamp_ns = stamps[0].tv_sec * _SECOND_NS + stamps[0].tv_nsec
                if -_FAR_S < stamps[2].tv_sec < _FAR_S:  # else no peer would take a probe that says so
                    nic_ns[0] = stamps[2].tv_sec * _SECOND_NS + stamps[2].tv_nsec
            elif control.cmsg_level == SOL_SOCKET and control.cmsg_type == _SO_RXQ_OVFL:
                memcpy(&count, CMSG_DATA(control), sizeof(uint32_t))
                dropped[0] = count
            elif control.cmsg_level == IPPROTO_IP and control.cmsg_type == IP_RECVERR:
                memcpy(&error, CMSG_DATA(control), sizeof(sock_extended_err))
                # SCM_TSTAMP_SND is 0.
                is_stamp[0] = error.ee_origin == _ORIGIN_TIMESTAMPING and error.ee_info == 0
            control = CMSG_NXTHDR(message, control)
        return stamp_ns

    cdef ProbePacket *_own_probe(self, int each) noexcept nogil:
        """The probe at the end of a packet that came back, or behind its headers, where it was cut off."""
        cdef uint8_t *payload = self._in_payloads + each * _PAYLOAD_BYTES
        cdef unsigned int length = self._in_headers[each].msg_len
        cdef unsigned int at
        cdef uint32_t name
        if length < _PROBE_BYTES or length > _PAYLOAD_BYTES:
            return NULL
        if not self._in_headers[each].msg_hdr.msg_flags & MSG_TRUNC:
            return <ProbePacket *>(payload + length - _PROBE_BYTES)
        for at in range(_PAYLOAD_BYTES - _PROBE_BYTES + 1):
            memcpy(&name, payload + at, sizeof(uint32_t))
            if name == _MAGIC:
                return <ProbePacket *>(payload + at)
        return NULL

    def take_departures(self, place, probes, stamp_ns):
        """See the twin."""
        self._take_departures(place, probes, stamp_ns, False)

    def take_nic_departures(self, place, probes, nic_ns):
        """See the twin."""
        self._take_departures(place, probes, nic_ns, True)

    def _take_departures(self, place, probes, stamp_ns, bint by_nic):
        cdef int64_t[::1] places = np.ascontiguousarray(place, np.int64)
        cdef int64_t[::1] stamps_ns = np.ascontiguousarray(stamp_ns, np.int64)
        cdef const uint8_t[::1] packets = np.frombuffer(probes.tobytes(), np.uint8)
        cdef Py_ssize_t each
        if not len(places) * _PROBE_BYTES == len(stamps_ns) * _PROBE_BYTES == len(packets):
            raise ValueError("columns differ in length")
        for each in range(places.shape[0]):
            self._check_place(places[each])
        pthread_mutex_lock(&self._mutex)
        for each in range(places.shape[0]):
            if by_nic:
                self._pass_nic(<int>places[each], <ProbePacket *>&packets[each * _PROBE_BYTES], stamps_ns[each])
            else:
                self._depart(<int>places[each], <ProbePacket *>&packets[each * _PROBE_BYTES], stamps_ns[each], 0)
        pthread_mutex_unlock(&self._mutex)

    cdef void _depart(self, int place, ProbePacket *probe, int64_t transmit_ns, int64_t by_ns) noexcept nogil:
        cdef int64_t number = probe.row & _ROW_MASK
        cdef Row *row
        if by_ns == 0:
            self._note_stamps(place, _LEFT, 1, 1)
            self._place[place].counts[_LEFT][_PACKETS] += self._place[place].watched
        if number >= self._rows or self._row[number].session != probe.session:
            return
        row = &self._row[number]
        if _leave(&self._outgoing, number, probe.sequence, transmit_ns, row.by_nic):
            row.left += 1
            row.waiting = 0
        row.left_sequence = max(row.left_sequence, probe.sequence)
        row.left_ns = max(row.left_ns, max(transmit_ns, by_ns))

    cdef void _pass_nic(self, int place, ProbePacket *probe, int64_t nic_ns) noexcept nogil:
        """Takes the NIC's stamp of an own probe that it sent."""
        cdef int64_t number = probe.row & _ROW_MASK
        cdef Place *each = &self._place[place]
        cdef Cell *cell
        each.counts[_LEFT][_STAMPED] += each.watched
        if number >= self._rows or self._row[number].session != probe.session:
            return
        cell = _cell(&self._outgoing, number, probe.sequence)
        if cell.sequence != probe.sequence:
            return
        if each.shift_ns and cell.host_ns and _is_odd(nic_ns - each.shift_ns - cell.host_ns):
            each.counts[_LEFT][_ODD] += each.watched
        elif self._row[number].by_nic:
            _note_transmit(&self._outgoing, number, probe.sequence, nic_ns)

    def take_arrivals(self, came, stamp_ns, int64_t local_now_ns, int64_t now_ns, nic_ns=None):
        """See the twin."""
        cdef int64_t[::1] places = np.ascontiguousarray(came.place, np.int64)
        cdef uint32_t[::1] addresses = np.ascontiguousarray(came.address, np.uint32)
        cdef uint32_t[::1] sizes = np.ascontiguousarray(came.lengths, np.uint32)
        cdef int64_t[::1] stamps_ns = np.ascontiguousarray(stamp_ns, np.int64)
        cdef int64_t[::1] by_nic_ns = np.zeros(len(stamps_ns), np.int64)
        if nic_ns is not None:
            by_nic_ns = np.ascontiguousarray(nic_ns, np.int64)
        cdef const uint8_t[::1] packets = np.frombuffer(came.probes.tobytes(), np.uint8)
        cdef Py_ssize_t each
        cdef Py_ssize_t count = places.shape[0]
        if not count == len(addresses) == len(sizes) == len(stamps_ns) == len(by_nic_ns) or len(packets) != count * _PROBE_BYTES:
            raise ValueError("columns differ in length")
        for each in range(count):
            self._check_place(places[each])
        pthread_mutex_lock(&self._mutex)
        try:
            self._make_room(count)
            for each in range(count):
                self._arrivals[each].place = <int32_t>places[each]
                self._arrivals[each].address = addresses[each]
                self._arrivals[each].length = sizes[each]
                self._arrivals[each].stamp_ns = stamps_ns[each]
                self._arrivals[each].nic_ns = by_nic_ns[each]
                self._arrivals[each].probe = <ProbePacket *>&packets[each * _PROBE_BYTES]
            self._hear(<int>count, local_now_ns, now_ns)
        finally:
            pthread_mutex_unlock(&self._mutex)

    def _make_room(self, int64_t count):
        if count > self._arrivals_room:
            self._arrivals = <Arrival *>_resized(self._arrivals, count * sizeof(Arrival))
            self._arrivals_room = count

    cdef void _hear(self, int count, int64_t local_now_ns, int64_t now_ns) noexcept nogil:
        cdef int each
        cdef Arrival *arrival
        cdef Row *row
        cdef int genuine = 0
        for each in range(count):
            self._place[self._arrivals[each].place].packets += 1
            self._place[self._arrivals[each].place].stamped += self._arrivals[each].stamp_ns != 0
            if self._place[self._arrivals[each].place].watched and self._arrivals[each].stamp_ns:
                self._come_by_nic(&self._arrivals[each])
        for each in range(self._places):
            if self._place[each].packets:
                self._note_stamps(each, _CAME, self._place[each].packets, self._place[each].stamped)
                self._place[each].packets = self._place[each].stamped = 0
        self._batch += 1
        for each in range(count):
            arrival = &self._arrivals[each]
            arrival.row = <int32_t>self._found[self._slot(arrival.place, arrival.address)] - 1
            if arrival.row < 0 or not _is_probe(arrival.probe, arrival.length):
                self._foreign += 1
                continue
            if arrival.stamp_ns == 0 and self._place[arrival.place].kinds[_CAME] == _USER:
                arrival.stamp_ns = local_now_ns
            self._arrivals[genuine] = arrival[0]
            genuine += 1
        self._meet(genuine)
        for each in range(genuine):
            if self._arrivals[each].known:
                self._enter(&self._arrivals[each])
        for each in range(genuine):
            arrival = &self._arrivals[each]
            if arrival.known:
                self._read_stamps(arrival)
            row = &self._row[arrival.row]
            # A packet came after the last reading, even if the clock was stepped and its stamp says otherwise. One
            # without a stamp came now.
            arrival.age_ns = 0
            if arrival.stamp_ns:
                arrival.age_ns = min(max(local_now_ns - arrival.stamp_ns, 0), now_ns - self._read_ns)
            row.heard_last_ns = local_now_ns - arrival.age_ns
            row.patience_ns = <int64_t>arrival.probe.interval_us * (1_000 * _INTERVALS) + _GRACE_NS
            row.deadline_ns = _NEVER
            if arrival.probe.use & _IN_USE:
                row.deadline_ns = now_ns - arrival.age_ns + row.patience_ns
            row.silent = False

    cdef void _come_by_nic(self, Arrival *arrival) noexcept nogil:
        """Counts a packet that the kernel stamped, and takes an odd stamp of the NIC's away."""
        cdef Place *place = &self._place[arrival.place]
        place.counts[_CAME][_PACKETS] += 1
        if not arrival.nic_ns:
            return
        place.counts[_CAME][_STAMPED] += 1
        if place.shift_ns and _is_odd(arrival.stamp_ns - (arrival.nic_ns - place.shift_ns)):
            place.counts[_CAME][_ODD] += 1
            arrival.nic_ns = 0

    cdef void _meet(self, int count) noexcept nogil:
        """Finds the peers that are new or have started anew. The latest probe of each says which life is the present one."""
        cdef int each
        cdef Arrival *arrival
        cdef Row *row
        for each in range(count):
            row = &self._row[self._arrivals[each].row]
            if self._arrivals[each].probe.session != row.peer_session:
                row.batch = self._batch
        for each in range(count):
            row = &self._row[self._arrivals[each].row]
            if row.batch == self._batch:
                row.batch_session = self._arrivals[each].probe.session
                row.batch_first = _NEVER
        for each in range(count):
            arrival = &self._arrivals[each]
            row = &self._row[arrival.row]
            arrival.known = row.batch != self._batch or arrival.probe.session == row.batch_session
            if row.batch == self._batch and arrival.known:
                row.batch_first = min(row.batch_first, arrival.probe.sequence)
        for each in range(count):
            arrival = &self._arrivals[each]
            row = &self._row[arrival.row]
            if row.batch == self._batch:
                row.batch = 0
                self._forget_peer(arrival.row)
                row.peer_session = row.batch_session
                row.highest = row.counted = row.batch_first - 1
                row.met = True

    cdef void _enter(self, Arrival *arrival) noexcept nogil:
        cdef ProbePacket *probe = arrival.probe
        cdef Row *row = &self._row[arrival.row]
        cdef bint full = arrival.length > _PROBE_BYTES
        cdef int64_t theirs = probe.row >> _ROW_BITS
        # Of a probe on a path that idles the sender tells the stamp half a minute later. What it took says nothing then.
        cdef int64_t receive_ns = arrival.nic_ns if row.by_nic else arrival.stamp_ns
        if probe.interval_us > _IDLE_US:
            receive_ns = 0
        if _place(&self._incoming, arrival.row, probe.sequence, full, receive_ns):
            row.received += 1
        row.said = probe.use >> _COUNT_SHIFT
        row.full_received += full
        if theirs != row.peer_bytes:
            row.peer_bytes = theirs
            self._agree(row)

    cdef void _read_stamps(self, Arrival *arrival) noexcept nogil:
        """Notes the stamps that a probe carries."""
        cdef ProbePacket *probe = arrival.probe
        cdef Row *row = &self._row[arrival.row]
        cdef int each
        for each in range(_PREDECESSORS):
            _note_transmit(&self._incoming, arrival.row, probe.sequence - 1 - each, probe.transmit_ns[each])
        if probe.peer_session == row.session:
            for each in range(_ECHOES):
                _note_receive(&self._outgoing, arrival.row, probe.heard - each, probe.receive_ns[each])
        row.highest = max(row.highest, probe.sequence)
        row.mesh_ms = probe.mesh_ms
        row.promised_us = probe.interval_us
        row.peer_kind = probe.kind

    cdef void _excuse_dropped(self, int place, int64_t dropped, int64_t now_ns) noexcept nogil:
        cdef int64_t row
        if dropped <= self._place[place].dropped:
            return
        self._dropped += dropped - self._place[place].dropped
        self._place[place].dropped = dropped
        for row in range(self._rows):
            if self._row[row].place == place:
                self._excuse(&self._row[row], now_ns)

    cdef inline void _excuse(self, Row *row, int64_t now_ns) noexcept nogil:
        if row.deadline_ns != _NEVER:
            row.deadline_ns = max(row.deadline_ns, now_ns + row.patience_ns)

    def judge(self, int64_t now_ns):
        """See the twin."""
        pthread_mutex_lock(&self._mutex)
        self._judge(now_ns)
        pthread_mutex_unlock(&self._mutex)

    cdef void _judge(self, int64_t now_ns) noexcept nogil:
        cdef int64_t number
        cdef bint stalled = now_ns - self._read_ns > self._tick_ns + _STALL_NS
        cdef Row *row
        self._read_ns = now_ns
        for number in range(self._rows):
            row = &self._row[number]
            if stalled:
                self._excuse(row, now_ns)
            if row.deadline_ns <= now_ns:
                row.silent = True
                row.deadline_ns = _NEVER

    def next_silence_ns(self):
        """See the protocol."""
        pthread_mutex_lock(&self._mutex)
        cdef int64_t earliest_ns = self._next_silence_ns()
        pthread_mutex_unlock(&self._mutex)
        return None if earliest_ns == _NEVER else earliest_ns

    cdef int64_t _next_silence_ns(self) noexcept nogil:
        cdef int64_t row
        cdef int64_t earliest_ns = _NEVER
        for row in range(self._rows):
            earliest_ns = min(earliest_ns, self._row[row].deadline_ns)
        return earliest_ns

    cdef void _note_stamps(self, int place, int direction, int64_t packets, int64_t stamped) noexcept nogil:
        """Counts packets that came with a stamp and without one, as `foliot_probe.io.timestamp_check` does."""
        cdef Place *each = &self._place[place]
        cdef int other
        if self._settled:
            return
        if stamped:
            each.kinds[direction] = _KERNEL
        elif not each.kinds[direction]:
            each.unstamped[direction] += packets
            if each.unstamped[direction] >= _PATIENCE:
                each.kinds[direction] = _USER
                each.missing[direction] = True
        each.kind = max(each.kinds[_LEFT] or _USER, each.kinds[_CAME] or _USER)
        self._settled = True
        for other in range(self._places):
            self._settled = self._settled and self._place[other].kind == _KERNEL

    # -- sending ----------------------------------------------------------------------------------------------------

    def send(self, int64_t tick):
        """See the protocol."""
        cdef int64_t sent
        with nogil:
            pthread_mutex_lock(&self._mutex)
            sent = self._send(tick)
            pthread_mutex_unlock(&self._mutex)
        return sent

    cdef int64_t _send(self, int64_t tick) noexcept nogil:
        cdef int64_t sent = 0
        cdef int begins = self._compose(tick)
        cdef int place
        cdef int turn
        cdef int64_t each
        cdef int64_t first
        cdef int64_t stop
        cdef int64_t local_ns
        cdef int64_t by_ns
        cdef Slot *slot
        for turn in range(self._places):
            place = (begins + turn) % self._places
            first, stop = self._starts[place * _PROBES_A_ROUND], self._starts[(place + 1) * _PROBES_A_ROUND]
            if first == stop:
                continue
            local_ns = self._local_ns()
            self._send_at(place, first, stop)
            if not self._place[place].kinds[_LEFT]:
                # Only packets of the last tick have had the time to come back with their stamps.
                self._note_stamps(place, _LEFT, self._place[place].sent, 0)
            self._place[place].sent = 0
            by_ns = self._local_ns()
            for each in range(first, stop):
                slot = &self._sorted[each]
                if not slot.went:
                    continue
                sent += 1
                self._row[slot.row].sent += 1
                self._row[slot.row].waiting += 1
                self._place[place].sent += 1
                if self._place[place].kinds[_LEFT] == _USER:
                    self._depart(place, &self._out_probes[each], local_ns, by_ns)
        return sent

    cdef void _send_at(self, int place, int64_t first, int64_t stop) noexcept nogil:
        cdef int sent
        cdef int64_t each
        for each in range(first, stop):
            self._sorted[each].went = True
        while first < stop:
            sent = sendmmsg(self._place[place].fd, self._out_headers + first, <unsigned int>(stop - first), MSG_DONTWAIT)
            if sent > 0:
                first += sent
                continue
            if errno == EMSGSIZE:
                self._place[place].refused = True
            self._unsent += 1
            self._sorted[first].went = False
            first += 1

    def compose(self, int64_t tick):
        """See the twin."""
        pthread_mutex_lock(&self._mutex)
        cdef int begins = self._compose(tick)
        cdef int64_t count = self._slot_count
        cdef int64_t each
        rows, padding = np.empty(count, np.int64), np.empty(count, np.int64)
        cdef int64_t[::1] row = rows
        cdef int64_t[::1] zeros = padding
        for each in range(count):
            row[each] = self._sorted[each].row
            zeros[each] = self._out_vectors[2 * each + 1].iov_len
        probes = (<char *>self._out_probes)[: count * sizeof(ProbePacket)]
        pthread_mutex_unlock(&self._mutex)
        return rows, probes, padding, begins

    cdef uint64_t _drawn(self) noexcept nogil:
        """The next number of a xorshift64* generator (Vigna, 2016)."""
        self._random ^= self._random >> 12
        self._random ^= self._random << 25
        self._random ^= self._random >> 27
        return self._random * <uint64_t>0x2545F4914F6CDD1D

    cdef int _compose(self, int64_t tick) noexcept nogil:
        """Fills the slots with the probes that are due, ordered as `send_order` says; returns the place that begins."""
        cdef int64_t number
        cdef int64_t due = 0
        cdef int begins = 0
        cdef bint coded
        cdef bint full
        cdef Row *row
        self._slot_count = 0
        for number in range(self._rows):
            row = &self._row[number]
            if row.due > tick:
                continue
            # After a stall the missed rounds are not made up for: a burst would measure itself.
            row.due += ((tick - row.due) // row.every + 1) * row.every
            row.round += 1
            if row.farewell > 0:
                row.farewell -= 1
                if row.farewell == 0:
                    row.every = row.announced
            coded = row.round % row.coded_every == 0
            full = (
                self._full_every > 0
                and row.round % self._full_every == _FULL_ROUND % self._full_every
                and row.full_bytes > 0
            )
            due += 1
            if self._drawn() % <uint64_t>due == 0:  # each stream that is due is equally often the first
                begins = row.place
            if self._place[row.place].fd < 0 or (row.waiting >= _HELD_UP and self._is_clogged(&self._place[row.place])):
                continue
            self._add_slot(number, 0, full and not coded)
            if coded:
                self._add_slot(number, 1, False)
                if full:
                    self._add_slot(number, 2, True)
        self._sort()
        return begins

    cdef bint _is_clogged(self, Place *place) noexcept nogil:
        """Whether so much of a socket's send buffer is taken that probes which do not leave might fill it."""
        cdef int taken = 0
        return ioctl(place.fd, SIOCOUTQ, &taken) == 0 and taken > place.room // _CLOGGED_PART

    cdef void _add_slot(self, int64_t row, int64_t turn, bint padded) noexcept nogil:
        cdef Slot *slot = &self._slots[self._slot_count]
        slot.row = <int32_t>row
        slot.place = self._row[row].place
        slot.turn = turn
        slot.padded = padded
        self._slot_count += 1

    cdef void _sort(self) noexcept nogil:
        """Orders the slots by place, and within it singles and firsts, seconds, padded ones, each kind by chance."""
        cdef int64_t count = self._slot_count
        cdef int64_t each
        cdef int64_t other
        cdef int64_t key
        cdef int64_t begins
        cdef Slot swapped
        memset(self._starts, 0, (self._places * _PROBES_A_ROUND + 1) * sizeof(int64_t))
        for each in range(count):
            self._starts[self._rank(each) + 1] += 1
            other = <int64_t>(self._drawn() % <uint64_t>(each + 1))
            self._order[each] = self._order[other]
            self._order[other] = each
        for key in range(self._places * _PROBES_A_ROUND):
            self._starts[key + 1] += self._starts[key]
        # Each start moves to its end while its slots are placed, which is the next one's start.
        for each in range(count):
            key = self._rank(self._order[each])
            self._sorted[self._starts[key]] = self._slots[self._order[each]]
            self._starts[key] += 1
        for key in range(self._places * _PROBES_A_ROUND, 0, -1):
            self._starts[key] = self._starts[key - 1]
        self._starts[0] = 0
        for each in range(count):
            self._fill(each)
        for each in range(count):
            self._keep(each)

    cdef inline int64_t _rank(self, int64_t slot) noexcept nogil:
        cdef Slot *each = &self._slots[slot]
        return each.place * _PROBES_A_ROUND + (2 if each.padded else each.turn)

    cdef void _fill(self, int64_t each) noexcept nogil:
        """Writes a probe as it was when the tick began: no probe of the tick knows of another one."""
        cdef Slot *slot = &self._sorted[each]
        cdef Row *row = &self._row[slot.row]
        cdef ProbePacket *probe = &self._out_probes[each]
        cdef iovec *vector = &self._out_vectors[2 * each]
        cdef msghdr *message = &self._out_headers[each].msg_hdr
        cdef Cell *cell
        cdef int back
        probe.magic = _MAGIC
        probe.kind = <uint8_t>self._kind(row)
        probe.use = row.said_count | row.in_use
        probe.mesh_ms = <uint16_t>row.wish_ms
        probe.row = <uint32_t>(slot.row | (row.own_bytes << _ROW_BITS))
        probe.interval_us = <uint32_t>(row.announced * (self._tick_ns // 1_000))
        probe.session = row.session
        probe.sequence = row.next + slot.turn
        for back in range(_PREDECESSORS):
            cell = _cell(&self._outgoing, slot.row, probe.sequence - 1 - back)
            probe.transmit_ns[back] = cell.transmit_ns if cell.sequence == probe.sequence - 1 - back else 0
        probe.peer_session = row.peer_session
        probe.heard = row.highest
        for back in range(_ECHOES):
            cell = _cell(&self._incoming, slot.row, row.highest - back)
            probe.receive_ns[back] = cell.receive_ns if cell.sequence == row.highest - back else 0
        if slot.padded:
            probe.use = (_said(row.full_sent + 1)) | row.in_use
        vector[0].iov_base = probe
        vector[0].iov_len = _PROBE_BYTES
        vector[1].iov_base = self._zeros
        vector[1].iov_len = row.full_bytes - (_IP_UDP_BYTES + _PROBE_BYTES) if slot.padded else 0
        memset(message, 0, sizeof(msghdr))
        message.msg_name = &row.address
        message.msg_namelen = sizeof(sockaddr_in)
        message.msg_iov = vector
        message.msg_iovlen = 2

    cdef inline int _kind(self, Row *row) noexcept nogil:
        """The kind of a row's own stamps."""
        return _HARDWARE if row.by_nic else self._place[row.place].kind

    cdef void _keep(self, int64_t each) noexcept nogil:
        """Remembers a probe of which the slot was filled."""
        cdef Slot *slot = &self._sorted[each]
        cdef Row *row = &self._row[slot.row]
        cdef int64_t sequence = self._out_probes[each].sequence
        _place(&self._outgoing, slot.row, sequence, slot.padded, 0)
        row.next = max(row.next, sequence + 1)
        if slot.padded:
            row.full_sent += 1
            row.said_count = _said(row.full_sent)

    # -- results ----------------------------------------------------------------------------------------------------

    def take_changes(self):
        """See the protocol."""
        cdef int64_t row
        fell, again = [], []
        pthread_mutex_lock(&self._mutex)
        for row in range(self._rows):
            if self._row[row].silent != self._row[row].told_silent:
                self._row[row].told_silent = self._row[row].silent
                (fell if self._row[row].silent else again).append(row)
        rows = [*fell, *again]
        heard_ns = [self._row[<int64_t>each].heard_last_ns for each in rows]
        heard = [max(self._row[<int64_t>each].highest, 0) for each in rows]
        cdef int64_t listened_ns = self._listened_ns
        pthread_mutex_unlock(&self._mutex)
        return self._changes_type(
            np.array(fell, np.intp), np.array(again, np.intp), np.array(heard_ns, np.int64),
            np.array(heard, np.int64), listened_ns,
        )  # fmt: skip

    def take_met(self):
        """See the protocol."""
        cdef int64_t row
        met = []
        pthread_mutex_lock(&self._mutex)
        for row in range(self._rows):
            if self._row[row].met:
                self._row[row].met = False
                met.append(row)
        pthread_mutex_unlock(&self._mutex)
        return np.array(met, np.intp)

    def take_refused(self):
        """See the protocol."""
        cdef int place
        refused = []
        pthread_mutex_lock(&self._mutex)
        for place in range(self._places):
            if self._place[place].refused:
                self._place[place].refused = False
                refused.append(place)
        pthread_mutex_unlock(&self._mutex)
        return np.array(refused, np.intp)

    def take_missing_stamps(self):
        """See the protocol."""
        cdef int place
        cdef int direction
        missing = []
        pthread_mutex_lock(&self._mutex)
        for place in range(self._places):
            for direction in range(2):
                if self._place[place].missing[direction]:
                    self._place[place].missing[direction] = False
                    missing.append((place, direction))
        pthread_mutex_unlock(&self._mutex)
        return missing

    def take_report(self):
        """See the protocol."""
        cdef int64_t number
        cdef int64_t sent
        cdef Row *row
        columns = np.empty((13, self._rows), np.int64)
        cdef int64_t[:, ::1] column = columns
        pthread_mutex_lock(&self._mutex)
        for number in range(self._rows):
            row = &self._row[number]
            column[0, number] = row.sent
            row.sent = 0
            column[1, number] = row.left_sequence
            column[2, number] = row.left_ns
            column[3, number] = 0
            if row.left > 0:
                column[3, number] = max(row.left_sequence - row.left_before - row.left, 0)
                row.left_before = row.left_sequence
            row.left = 0
            column[4, number] = row.highest - row.counted
            row.counted = row.highest
            column[5, number] = row.received
            row.received = 0
            sent = 0
            if row.said > 0 and row.said_counted > 0:
                sent = (row.said - row.said_counted + _FULL_COUNTS) % _FULL_COUNTS
            if sent < _FULL_COUNTS - _MOST_BACK:
                row.said_counted = row.said
            else:
                sent = 0
            column[6, number] = max(sent, row.full_received)
            column[7, number] = row.full_received
            row.full_received = 0
            column[8, number] = row.full_bytes
            column[9, number] = row.heard_last_ns
            column[10, number] = max(row.highest, 0)
            column[11, number] = self._kind(row)
            column[12, number] = row.peer_kind
        cdef int64_t listened_ns = self._listened_ns
        try:
            outgoing, incoming = self._take_completed(True), self._take_completed(False)
        finally:
            pthread_mutex_unlock(&self._mutex)
        return self._report_type(listened_ns, self._in_order(outgoing), self._in_order(incoming), *columns)

    def _in_order(self, found):
        """Probes by row and cell. It needs Python's lock, so it is no work for whoever has the mutex."""
        return self._completed_type(*found[:, np.lexsort((found[1] & (_DEPTH - 1), found[0]))])

    def _take_completed(self, bint is_outgoing):
        cdef Ring *ring = &self._outgoing if is_outgoing else &self._incoming
        found = np.empty((4, ring.count), np.int64)
        cdef int64_t[:, ::1] column = found
        cdef int64_t each
        cdef int64_t kept = 0
        cdef Cell *cell
        for each in range(ring.count):
            cell = &ring.cells[ring.listed[each]]
            cell.listed = False
            if cell.ready and not cell.full:
                column[0, kept] = ring.listed[each] // _DEPTH
                column[1, kept] = cell.sequence
                column[2, kept] = cell.transmit_ns
                column[3, kept] = cell.receive_ns
                kept += 1
            cell.ready = False
        ring.count = 0
        return found[:, :kept]

    def stamps_of(self, rows):
        """See the protocol."""
        cdef int64_t[::1] wanted = np.ascontiguousarray(rows, np.int64)
        cdef Py_ssize_t each
        for each in range(wanted.shape[0]):
            self._check_row(wanted[each])
        found = np.empty((4, wanted.shape[0] * _DEPTH), np.int64)
        cdef int64_t[:, ::1] column = found
        cdef int64_t kept = 0
        cdef int64_t place
        cdef Cell *cell
        pthread_mutex_lock(&self._mutex)
        for each in range(wanted.shape[0]):
            for place in range(_DEPTH):
                cell = &self._incoming.cells[wanted[each] * _DEPTH + place]
                if cell.sequence != _NEVER_SENT and cell.transmit_ns != 0 and cell.receive_ns != 0:
                    column[0, kept], column[1, kept] = wanted[each], cell.sequence
                    column[2, kept], column[3, kept] = cell.transmit_ns, cell.receive_ns
                    kept += 1
        pthread_mutex_unlock(&self._mutex)
        return self._completed_type(*found[:, :kept])

    def peers_mesh_ms(self):
        """See the protocol."""
        return self._column(0)

    def promised_us(self):
        """See the protocol."""
        return self._column(1)

    def heard_last_ns(self):
        """See the protocol."""
        return self._column(2)

    def kinds(self):
        """See the protocol."""
        return self._column(3)

    def _column(self, int which):
        found = np.empty(self._rows, np.int64)
        cdef int64_t[::1] column = found
        cdef int64_t number
        cdef Row *row
        pthread_mutex_lock(&self._mutex)
        for number in range(self._rows):
            row = &self._row[number]
            if which == 0:
                column[number] = row.mesh_ms
            elif which == 1:
                column[number] = row.promised_us
            elif which == 2:
                column[number] = row.heard_last_ns
            else:
                column[number] = max(self._kind(row), <int>row.peer_kind)
        pthread_mutex_unlock(&self._mutex)
        return found

    def counts(self):
        """See the protocol."""
        pthread_mutex_lock(&self._mutex)
        counted = {"foreign": self._foreign, "unsent": self._unsent, "dropped": self._dropped}
        pthread_mutex_unlock(&self._mutex)
        return {name: count for name, count in counted.items() if count}

    # -- by itself --------------------------------------------------------------------------------------------------

    def run(self, int64_t start_ns, int changed_fd, double realtime_share):
        """See the protocol. Tick n is at `start_ns` and n times the time between two ticks."""
        cdef int number
        with nogil:
            self._rise(realtime_share)
            number = self._run(start_ns, changed_fd, realtime_share)
        if number:
            raise OSError(number, "the packet loop has ended")

    def stop(self):
        """Ends `run`."""
        cdef uint64_t one = 1
        write(self._stop_fd, &one, sizeof(one))

    def realtime(self):
        """See the protocol."""
        pthread_mutex_lock(&self._mutex)
        cdef int priority = self._priority
        pthread_mutex_unlock(&self._mutex)
        return None if priority < 0 else priority > 0

    cdef void _rise(self, double realtime_share) noexcept nogil:
        """Asks for the lowest real-time priority. What runs without any cannot hold the thread up then."""
        cdef sched_param parameters
        parameters.sched_priority = 1
        self._metered_ns = clock_ns(CLOCK_MONOTONIC)
        self._used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID)
        if realtime_share > 0 and sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &parameters) == 0:
            self._priority = 1

    cdef void _meter(self, int64_t now_ns, double realtime_share) noexcept nogil:
        """Gives the priority back for good if the thread took more of a processor in a second than it may."""
        cdef sched_param parameters
        cdef int64_t used_ns
        if self._priority <= 0 or now_ns - self._metered_ns < _SECOND_NS:
            return
        used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID)
        if <double>(used_ns - self._used_ns) > realtime_share * <double>(now_ns - self._metered_ns):
            parameters.sched_priority = 0
            sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &parameters)
            self._priority = -1
        self._metered_ns, self._used_ns = now_ns, used_ns

    def take_late_ns(self):
        """By how much the latest tick since the last call was late, or how long the longest one took, in ns."""
        pthread_mutex_lock(&self._mutex)
        cdef int64_t late_ns = self._late_ns
        self._late_ns = 0
        pthread_mutex_unlock(&self._mutex)
        return late_ns

    cdef int _run(self, int64_t start_ns, int changed_fd, double realtime_share) noexcept nogil:
        cdef int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        cdef itimerspec when
        cdef pollfd waited[2]
        cdef int number = 0
        cdef int64_t last
        if timer < 0:
            return errno
        last = (clock_ns(CLOCK_MONOTONIC) - start_ns) // self._tick_ns
        when.it_interval.tv_sec, when.it_interval.tv_nsec = self._tick_ns // _SECOND_NS, self._tick_ns % _SECOND_NS
        when.it_value.tv_sec = (start_ns + (last + 1) * self._tick_ns) // _SECOND_NS
        when.it_value.tv_nsec = (start_ns + (last + 1) * self._tick_ns) % _SECOND_NS
        waited[0].fd, waited[1].fd = timer, self._stop_fd
        waited[0].events = waited[1].events = POLLIN
        waited[0].revents = waited[1].revents = 0  # a signal that interrupts the first wait leaves them
        if timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) < 0:
            number = errno
        while not number:
            number = self._wait(waited)
            if waited[1].revents & POLLIN:
                break
            if not number:
                last = self._turn(start_ns, last, timer, changed_fd)
                self._meter(clock_ns(CLOCK_MONOTONIC), realtime_share)
        close(timer)
        return number

    cdef int _wait(self, pollfd *waited) noexcept nogil:
        """Waits for the next tick, the next path that would fall silent, or the end."""
        cdef timespec timeout
        cdef timespec *until = NULL
        cdef int64_t earliest_ns
        pthread_mutex_lock(&self._mutex)
        earliest_ns = self._next_silence_ns()
        pthread_mutex_unlock(&self._mutex)
        if earliest_ns != _NEVER:
            earliest_ns = max(earliest_ns - clock_ns(CLOCK_MONOTONIC), 0)
            timeout.tv_sec, timeout.tv_nsec = earliest_ns // _SECOND_NS, earliest_ns % _SECOND_NS
            until = &timeout
        if ppoll(waited, 2, until, NULL) < 0 and errno != EINTR:
            return errno
        return 0

    cdef int64_t _turn(self, int64_t start_ns, int64_t last, int timer, int changed_fd) noexcept nogil:
        """Reads, judges, and sends if a tick is due; returns the last tick."""
        cdef uint64_t count
        cdef uint64_t one = 1
        cdef int64_t now_ns = clock_ns(CLOCK_MONOTONIC)
        cdef int64_t tick = (now_ns - start_ns) // self._tick_ns
        cdef int64_t row
        cdef bint changed = False
        read(timer, &count, sizeof(count))
        pthread_mutex_lock(&self._mutex)
        self._listen(now_ns)
        for row in range(self._rows):
            changed = changed or self._row[row].silent != self._row[row].told_silent
        if tick > last:
            self._send(tick)
            self._late_ns = max(self._late_ns, now_ns - start_ns - (last + 1) * self._tick_ns)
        self._late_ns = max(self._late_ns, clock_ns(CLOCK_MONOTONIC) - now_ns)
        pthread_mutex_unlock(&self._mutex)
        if changed:
            write(changed_fd, &one, sizeof(one))
        return max(tick, last)


cdef void *_resized(void *memory, size_t size) except NULL:
    cdef void *resized = realloc(memory, size)
    if resized is NULL:
        raise MemoryError(f"no memory for {size} bytes")
    return resized
