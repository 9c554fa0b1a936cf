"""Denies a process what decoding does not need: files, sockets, processes, memory, and other system calls.

If the kernel filters system calls (Linux on x86_64 and aarch64), unlisted ones fail; elsewhere, only resource limits
apply. See seccomp(2) and linux/bpf_common.h.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

#: It cannot open files or sockets, write to files or start processes.
LIMITS: Final = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NOFILE: 0,
    resource.RLIMIT_NPROC: 0,
}

#: Errors of calls that a process may not make; its audio causes all others.
REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EMFILE, errno.EFBIG, errno.ENOMEM})

#: System calls that a process makes, by number on x86_64 and on aarch64. None of them names a file, a process or a
#: network address.
SYSTEM_CALLS: Final = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "getpid": (39, 172),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "exit": (60, 93),
    "getrusage": (98, 165),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}


class Machine(msgspec.Struct, frozen=True):
    """A processor architecture: its column in the table of system calls, and its audit number in the kernel."""

    column: int
    audit: int


MACHINES: Final = {"x86_64": Machine(0, 0xC000003E), "aarch64": Machine(1, 0xC00000B7)}

_SET_DEATH_SIGNAL: Final = 1
_SET_SECCOMP: Final = 22
_SET_NO_NEW_PRIVILEGES: Final = 38
_FILTER: Final = 2
_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
#: The call fails with EPERM.
_REFUSE: Final = 0x00050001
#: Offsets of the call's number and the architecture in a filter's input.
_NUMBER: Final = 0
_AUDIT: Final = 4


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


_libc: Final = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, if it supports that."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def confine(memory_bytes: int) -> bool:
    """Limit this process for good, to `memory_bytes` more than it has; return whether system calls are filtered."""
    for limit, most in {resource.RLIMIT_AS: _address_space() + memory_bytes, **LIMITS}.items():
        with suppress(ValueError, OSError):  # not every system has every limit, and one may be lower already
            resource.setrlimit(limit, (most, most))
    return _filter()


def _address_space() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    except OSError:
        return 1 << 30
    return pages * os.sysconf("SC_PAGE_SIZE")


def _filter() -> bool:
    machine = MACHINES.get(platform.machine())
    if machine is None or not hasattr(_libc, "prctl"):
        return False
    instructions = _instructions(machine, [numbers[machine.column] for numbers in SYSTEM_CALLS.values()])
    array = (_Instruction * len(instructions))(*instructions)
    program = ctypes.byref(_Program(len(instructions), array))
    # The kernel requires the first, so that a filtered process cannot gain another user's rights.
    refused: int = _libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or _libc.prctl(_SET_SECCOMP, _FILTER, program, 0, 0)
    return refused == 0


def _instructions(machine: Machine, numbers: Iterable[int]) -> list[_Instruction]:
    tests = list(numbers)
    return [
        _Instruction(_LOAD, 0, 0, _AUDIT),
        _Instruction(_JUMP_IF_EQUAL, 0, len(tests) + 1, machine.audit),
        _Instruction(_LOAD, 0, 0, _NUMBER),
        *(_Instruction(_JUMP_IF_EQUAL, len(tests) - place, 0, number) for place, number in enumerate(tests)),
        _Instruction(_RETURN, 0, 0, _REFUSE),
        _Instruction(_RETURN, 0, 0, _ALLOW),
    ]
