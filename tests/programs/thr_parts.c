// odtest: expect=froze timeout=90 mem=64
/*
 * Threads receive what must come at once or not at all, in calls that are cut short by whoever
 * interrupts them and cannot be gone on with: eight messages by one recvmmsg, and no less than
 * SO_RCVLOWAT from a stream. While the program forks again and again each answer is whole.
 */
#include "proc_region.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { MESSAGES = 8, LEAST = 3000 };
static const size_t BYTES = 8 * OD_MB;
static int records[2], stream[2];
static atomic_int done;
static atomic_long received;

static void *receive_messages(void *unused)
{
    uint32_t got[MESSAGES], next = 0;
    struct iovec part[MESSAGES];
    struct mmsghdr all[MESSAGES] = { 0 };
    (void)unused;
    while (!done) {
        for (int i = 0; i < MESSAGES; i++) {
            part[i] = (struct iovec){ &got[i], sizeof got[i] };
            all[i].msg_hdr = (struct msghdr){ .msg_iov = &part[i], .msg_iovlen = 1 };
        }
        int n = recvmmsg(records[0], all, MESSAGES, 0, NULL);
        CHECK(n == MESSAGES, "recvmmsg answered %d: %s", n, strerror(errno));
        for (int i = 0; i < MESSAGES; i++, next++)
            CHECK(got[i] == next, "message %u is %u", next, got[i]);
        received++;
    }
    return NULL;
}

static void *receive_much(void *unused)
{
    static char got[1 << 16];
    (void)unused;
    while (!done) {
        ssize_t n = recv(stream[0], got, sizeof got, 0);
        CHECK(n >= LEAST, "recv answered %zd, no less than %d was asked for", n, LEAST);
        received++;
    }
    return NULL;
}

/* One after the other, so that a part has come most of the time. */
static void send_all(void *unused)
{
    static char text[100];
    (void)unused;
    close(records[0]), close(stream[0]);
    for (uint32_t number = 0;; number++) {
        if (send(records[1], &number, sizeof number, MSG_NOSIGNAL) < 0 ||
            send(stream[1], text, sizeof text, MSG_NOSIGNAL) < 0)
            return;
        usleep(20);
    }
}

int main(void)
{
    pthread_t thread[2];
    int least = LEAST;
    OK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, records));
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream));
    OK(setsockopt(stream[0], SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least));
    pid_t sender = od_spawn(send_all, NULL);
    close(records[1]), close(stream[1]);
    void *region = region_new(BYTES, 30);
    region_look(region, BYTES, 30, "before");
    CHECK(pthread_create(&thread[0], NULL, receive_messages, NULL) == 0, "pthread_create");
    CHECK(pthread_create(&thread[1], NULL, receive_much, NULL) == 0, "pthread_create");
    double since = seconds();
    for (size_t round = 0; round < 200 && (round < 40 || seconds() - since < 5); round++) {
        region_touch(region, BYTES, 30, round);
        region_look(region, BYTES, 30, "while parts come");
        usleep(1000);
    }
    done = 1;
    /* The last calls get what they wait for. */
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    kill(sender, SIGKILL);
    while (waitpid(sender, NULL, 0) < 0 && errno == EINTR) {
    }
    close(records[0]), close(stream[0]);
    CHECK(received > 0, "nothing came");
    return od_done();
}
