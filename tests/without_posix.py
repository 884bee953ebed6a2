"""NTRM as on a system without POSIX: ``python without_posix.py -m ntrm segment …``.

What other systems lack is taken away before NTRM is imported, in this process and in every child that it starts: locks
and limits of the system from our modules (libraries have their own ways there), functions and flags of ``os``, the
alarm, names relative to an open folder, and descriptors handed to children.
"""

from __future__ import annotations

import builtins
import os
import runpy
import shutil
import signal
import subprocess
import sys
from typing import Any

MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty"}
FLAGS = ("O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC")
CALLS = (
    "memfd_create",
    "posix_fallocate",
    "fwalk",
    "pread",
    "preadv",
    "pwrite",
    "mkfifo",
    "geteuid",
    "fchmod",
    "killpg",
)
ALARM = ("SIGALRM", "alarm", "setitimer")
RELATIVE = ("open", "stat", "lstat", "unlink", "remove", "mkdir", "rmdir", "rename", "replace")


def hide() -> None:
    system_import, start = builtins.__import__, subprocess.Popen.__init__

    def import_(name: str, globals_: Any = None, *rest: Any, **named: Any) -> Any:
        if name in MODULES and str((globals_ or {}).get("__name__")).partition(".")[0] == "ntrm":
            raise ModuleNotFoundError(f"hidden: {name}", name=name)
        return system_import(name, globals_, *rest, **named)

    def popen(self: Any, command: Any, *rest: Any, **named: Any) -> None:
        if named.get("pass_fds"):
            raise ValueError("hidden: pass_fds")
        if command[0] == sys.executable:
            command = [sys.executable, __file__, *command[1:]]
        start(self, command, *rest, **named)

    builtins.__import__, subprocess.Popen.__init__ = import_, popen  # type: ignore[assignment]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    for name in RELATIVE:
        setattr(os, name, _absolute(getattr(os, name)))
    os.supports_dir_fd = set()
    for module, names in ((os, FLAGS + CALLS), (signal, ALARM)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def _absolute(call: Any) -> Any:
    def wrapped(*values: Any, dir_fd: int | None = None, **named: Any) -> Any:
        if dir_fd is not None or named.get("src_dir_fd") is not None:
            raise NotImplementedError("hidden: dir_fd")
        return call(*values, **named)

    return wrapped


if __name__ == "__main__":
    hide()
    arguments = [argument for argument in sys.argv[1:] if argument != "-P"]
    sys.path.pop(0)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1])
    else:
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
