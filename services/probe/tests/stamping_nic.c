/* Stands between a process and the kernel, and makes of the loopback device a NIC that stamps, whose clock is ahead by
 * SHIFT_NS. Real packets and the kernel's own stamps pass through; what is added is laid out as Linux lays it out:
 *
 * - A packet that came has the NIC's stamp as the third of its timespecs, beside the kernel's.
 * - A packet that left comes back twice on the error queue, as SOF_TIMESTAMPING_OPT_TX_SWHW says: with the kernel's stamp,
 *   and then with the NIC's, which has no stamp of the kernel's.
 *
 * LOSES: of so many packets, the NIC stamps all but one. FAR: its stamps lie beyond what 64 bits hold.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define SCM_TIMESTAMPING 37
#define SECOND 1000000000LL

typedef int (*receiver)(int, struct mmsghdr *, unsigned int, int, struct timespec *);

static int64_t number(const char *name) {
  const char *said = getenv(name);
  return said ? atoll(said) : 0;
}

/* The timespecs of a message's stamp; NULL: it has none. */
static struct timespec *stamps(struct msghdr *message) {
  for (struct cmsghdr *each = CMSG_FIRSTHDR(message); each; each = CMSG_NXTHDR(message, each))
    if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_TIMESTAMPING) return (struct timespec *)CMSG_DATA(each);
  return NULL;
}

static int is_lost(void) {
  static unsigned int turn;
  int64_t loses = number("LOSES");
  return loses && ++turn % loses == 0;
}

static void stamp(struct timespec *of, int64_t later_ns) {
  int64_t at = of[0].tv_sec * SECOND + of[0].tv_nsec + later_ns + number("SHIFT_NS");
  of[2].tv_sec = number("FAR") ? INT64_MAX / SECOND : at / SECOND;
  of[2].tv_nsec = at % SECOND;
}

static void copy(struct mmsghdr *to, const struct mmsghdr *from) {
  memcpy(to->msg_hdr.msg_iov->iov_base, from->msg_hdr.msg_iov->iov_base, from->msg_hdr.msg_iov->iov_len);
  memcpy(to->msg_hdr.msg_control, from->msg_hdr.msg_control, from->msg_hdr.msg_controllen);
  to->msg_hdr.msg_controllen = from->msg_hdr.msg_controllen;
  to->msg_hdr.msg_flags = from->msg_hdr.msg_flags;
  to->msg_len = from->msg_len;
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned int room, int flags, struct timespec *timeout) {
  receiver real = (receiver)dlsym(RTLD_NEXT, "recvmmsg");
  int departures = (flags & MSG_ERRQUEUE) && room > 1, each, got, count, twice[1024];
  struct timespec *of;
  got = real(fd, messages, departures ? room / 2 : room, flags, timeout);
  if (!departures) {
    for (each = 0; each < got; each++)
      if ((of = stamps(&messages[each].msg_hdr)) && of[0].tv_sec && !is_lost()) stamp(of, -900);
    return got;
  }
  for (each = 0, count = got; each < got; each++) count += twice[each] = !is_lost();
  for (each = got - 1, room = count; each >= 0; each--) {
    if (twice[each]) {
      copy(&messages[--room], &messages[each]);
      if ((of = stamps(&messages[room].msg_hdr))) {
        stamp(of, 1700);
        memset(of, 0, sizeof *of);
      }
    }
    if (--room != (unsigned int)each) copy(&messages[room], &messages[each]);
  }
  return count;
}
