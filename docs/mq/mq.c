/* A client of the queue in C: one call, the answer on stdout.

       cc -o mq mq.c
       ./mq publish '{"queue": "telemetry", "message": {"temp": 36.5}}'
       ./mq consume_next '{"queue": "telemetry", "waitMs": 10000}'
       ./mq ack '{"messageKey": "msg:telemetry:…", "leaseId": "…"}'

   YIRANGMQ_ROOT is the mailbox (queue/mailbox), YIRANGMQ_CLIENT the clientId. Exit code: 0 ok, 1 refused, 4 no answer. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, WAIT_MS = 30000, LOOK_AGAIN_MS = 1000 };

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Write the request beside its place and rename it, so that the manager never reads half of it. */
static int send_request(const char *draft, const char *path, const char *id, const char *client, const char *command,
                        const char *payload)
{
    int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    FILE *file = fdopen(fd, "w");
    fprintf(file, "{\"requestId\":\"%s\",\"clientId\":\"%s\",\"command\":\"%s\",\"deadlineMs\":%lld,\"payload\":%s}\n", id,
            client, command, now_ms() + WAIT_MS, payload);
    if (fclose(file) || rename(draft, path)) {
        unlink(draft);
        return -1;
    }
    return 0;
}

/* Wait until the answer is there; the manager renames it in whole. */
static FILE *await_answer(int watch, const char *path)
{
    long long end = now_ms() + WAIT_MS;
    char events[4096];
    for (;;) {
        FILE *file = fopen(path, "r");
        if (file || errno != ENOENT || now_ms() >= end)
            return file;
        struct pollfd ready = {.fd = watch, .events = POLLIN};
        if (poll(&ready, 1, LOOK_AGAIN_MS) > 0 && read(watch, events, sizeof events) < 0)
            return NULL;
    }
}

int main(int count, char **words)
{
    if (count != 3) {
        fprintf(stderr, "usage: %s COMMAND PAYLOAD\n", words[0]);
        return 2;
    }
    const char *root = getenv("YIRANGMQ_ROOT"), *client = getenv("YIRANGMQ_CLIENT");
    root = root ? root : "queue/mailbox";
    client = client ? client : "c";
    char id[64], folder[PATH_SIZE], draft[PATH_SIZE], request[PATH_SIZE], answer[PATH_SIZE];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(id, sizeof id, "c-%ld-%lld%09ld", (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
    snprintf(folder, sizeof folder, "%s/responses/%s", root, client);
    snprintf(draft, sizeof draft, "%s/requests/.%s.tmp", root, id);
    snprintf(request, sizeof request, "%s/requests/%s.json", root, id);
    if (snprintf(answer, sizeof answer, "%s/%s.json", folder, id) >= (int)sizeof answer)
        return 2;

    mkdir(folder, 0700); /* watched before the request is there; it may be there already */
    int watch = inotify_init1(IN_CLOEXEC);
    if (inotify_add_watch(watch, folder, IN_MOVED_TO) < 0 || send_request(draft, request, id, client, words[1], words[2])) {
        perror(root);
        return 3;
    }
    FILE *file = await_answer(watch, answer);
    if (!file) {
        unlink(request); /* it is not carried out if it still can be taken back */
        fprintf(stderr, "no answer within %d s: does the manager run?\n", WAIT_MS / 1000);
        return 4;
    }
    char text[4096];
    size_t size, begin = fread(text, 1, sizeof text - 1, file);
    text[begin] = '\0';
    int refused = strstr(text, "\"ok\":true") == NULL; /* it comes right behind the requestId */
    for (size = begin; size > 0; size = fread(text, 1, sizeof text, file))
        fwrite(text, 1, size, stdout);
    fclose(file);
    unlink(answer);
    return refused;
}
