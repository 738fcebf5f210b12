"""Faults of a role: loaded as sitecustomize by the interpreter of the unmodified roles, caused by USR2.

Which one is in the home's file fault-<pid>. With KINGDOM_CLOCK_FILE set, the wall clock is off by the
seconds in that file: what a step of the machine's clock looks like to every role, without one. Heartbeats get the
times that such a clock would give them; other files keep the machine's.
"""

import os
import signal
import threading
import time


def busy() -> None:
    while True:
        pass


def read() -> None:
    os.read(os.pipe()[0], 1)


def deadlock() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def c_call() -> None:
    sum(range(10**15))


def crash() -> None:
    raise RuntimeError("as asked")


KINDS = {"busy": busy, "read": read, "deadlock": deadlock, "c_call": c_call, "crash": crash}


def cause(*_: object) -> None:
    os.nice(19)  # who spins takes only the time that the other tests leave
    with open(f"{os.environ['KINGDOM_HOME']}/fault-{os.getpid()}") as note:
        KINDS[note.read()]()


def stepped_time() -> float:
    try:
        with open(os.environ["KINGDOM_CLOCK_FILE"]) as step:
            return TRUE_TIME() + float(step.read())
    except (OSError, ValueError):
        return TRUE_TIME()


def stepped_write(file: int, data: bytes, offset: int) -> int:
    written = TRUE_PWRITE(file, data, offset)
    os.utime(file, (stepped_time(),) * 2)
    return written


TRUE_TIME, TRUE_PWRITE = time.time, os.pwrite

if __name__ == "sitecustomize" and "KINGDOM_HOME" in os.environ:
    signal.signal(signal.SIGUSR2, cause)
    if "KINGDOM_CLOCK_FILE" in os.environ:
        time.time, os.pwrite = stepped_time, stepped_write
