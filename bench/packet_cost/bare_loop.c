/* The least that a program can do for probes and their stamps: sendmmsg, poll, recvmmsg, and the stamps summed up.
   Its packets say nothing, and it remembers nothing. */

#define _GNU_SOURCE
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { SLOTS = 512, SOCKETS = 256, PAYLOAD = 144, ROOM = 256, CONTROL = 128, TIMESTAMPING = 37 };

static uint8_t payloads[SLOTS][ROOM], controls[SLOTS][CONTROL];
static struct mmsghdr inbox[SLOTS], outbox[SLOTS];
static struct iovec in_vectors[SLOTS], out_vectors[SLOTS];
static uint8_t probe[PAYLOAD];

/* Sends one packet to each address from this socket; the number that went. */
int bare_send(int fd, struct sockaddr_in *addresses, int count) {
  int sent = 0;
  for (int first = 0; first < count; first += SLOTS) {
    int some = count - first < SLOTS ? count - first : SLOTS;
    for (int each = 0; each < some; each++) {
      out_vectors[each] = (struct iovec){probe, PAYLOAD};
      outbox[each].msg_hdr = (struct msghdr){.msg_name = &addresses[first + each],
                                             .msg_namelen = sizeof(struct sockaddr_in),
                                             .msg_iov = &out_vectors[each],
                                             .msg_iovlen = 1};
    }
    int went = sendmmsg(fd, outbox, some, MSG_DONTWAIT);
    sent += went > 0 ? went : 0;
  }
  return sent;
}

/* To be called once. */
void bare_begin(void) {
  for (int each = 0; each < SLOTS; each++) {
    in_vectors[each] = (struct iovec){payloads[each], ROOM};
    inbox[each].msg_hdr = (struct msghdr){
        .msg_iov = &in_vectors[each], .msg_iovlen = 1, .msg_control = controls[each], .msg_controllen = CONTROL};
  }
}

static int read_queue(int fd, int flags, int64_t *sum_ns, int *stamped) {
  int total = 0, got;
  do {
    got = recvmmsg(fd, inbox, SLOTS, flags | MSG_DONTWAIT, NULL);
    for (int each = 0; each < got; each++) {
      for (struct cmsghdr *control = CMSG_FIRSTHDR(&inbox[each].msg_hdr); control;
           control = CMSG_NXTHDR(&inbox[each].msg_hdr, control)) {
        if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == TIMESTAMPING) {
          struct timespec stamp;
          memcpy(&stamp, CMSG_DATA(control), sizeof stamp);
          *sum_ns += stamp.tv_nsec;
          *stamped += stamp.tv_sec != 0;
        }
      }
      inbox[each].msg_hdr.msg_controllen = CONTROL;
    }
    total += got > 0 ? got : 0;
  } while (got == SLOTS);
  return total;
}

/* Reads both queues of the sockets until they are empty; the number of packets that came, without own ones handed back. */
int bare_listen(const int *fds, int count, int64_t *sum_ns, int *stamped) {
  struct pollfd ready[SOCKETS];
  int came = 0;
  for (int each = 0; each < count; each++) ready[each] = (struct pollfd){fds[each], POLLIN, 0};
  if (poll(ready, count, 0) <= 0) return 0;
  for (int each = 0; each < count; each++)
    if (ready[each].revents & POLLERR) read_queue(fds[each], MSG_ERRQUEUE, sum_ns, stamped);
  for (int each = 0; each < count; each++)
    if (ready[each].revents & (POLLIN | POLLERR)) came += read_queue(fds[each], 0, sum_ns, stamped);
  return came;
}
