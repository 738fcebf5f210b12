/* oldkernel MACHINE COMMAND...: run a command as on another machine, by a filter of system calls.
 *
 *   nolandlock   a kernel before 5.13: there is no Landlock
 *   container    besides, what the default profile of container engines refuses: namespaces and mounts
 *
 * The calls of Landlock have the same numbers on every architecture.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __NR_landlock_create_ruleset
#define __NR_landlock_create_ruleset 444
#define __NR_landlock_add_rule 445
#define __NR_landlock_restrict_self 446
#endif
#ifndef __NR_clone3
#define __NR_clone3 435
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define REFUSE(number) ANSWER(SECCOMP_RET_ERRNO | (number))
/* Refuse a call; another one goes on with what follows. */
#define REFUSED(call, number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), REFUSE(number)

#define NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static struct sock_filter without_landlock[] = {
    LOAD(nr),
    REFUSED(__NR_landlock_create_ruleset, ENOSYS),
    REFUSED(__NR_landlock_add_rule, ENOSYS),
    REFUSED(__NR_landlock_restrict_self, ENOSYS),
    ANSWER(SECCOMP_RET_ALLOW),
};

static struct sock_filter contained[] = {
    LOAD(nr),
    REFUSED(__NR_unshare, EPERM),
    REFUSED(__NR_setns, EPERM),
    REFUSED(__NR_mount, EPERM),
    REFUSED(__NR_umount2, EPERM),
    REFUSED(__NR_pivot_root, EPERM),
    REFUSED(__NR_clone3, ENOSYS),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 0, 3),
    LOAD(args[0]), /* the flags are in its lower half */
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1),
    REFUSE(EPERM),
    ANSWER(SECCOMP_RET_ALLOW),
};

static void enter(struct sock_filter *steps, size_t count)
{
    struct sock_fprog program = {.len = (unsigned short)count, .filter = steps};

    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("oldkernel: seccomp");
        _exit(125);
    }
}
#define ENTER(steps) enter((steps), sizeof(steps) / sizeof(*(steps)))

int main(int count, char **words)
{
    int is_container = count > 2 && !strcmp(words[1], "container");

    if (count < 3 || (!is_container && strcmp(words[1], "nolandlock"))) {
        fprintf(stderr, "usage: %s nolandlock|container COMMAND...\n", words[0]);
        return 125;
    }
    /* Root needs no such promise, and keeps what sudo and ping live on; others cannot enter a filter without it. */
    if (geteuid())
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    ENTER(without_landlock);
    if (is_container)
        ENTER(contained);
    execvp(words[2], words + 2);
    perror(words[2]);
    return 127;
}
