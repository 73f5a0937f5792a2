"""Processes that do not outlive the one that started them."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1
C_LIBRARY = ctypes.CDLL(None)


def end_with_parent():
    """For subprocess's preexec_fn: the child is killed when its parent dies (prctl(2))."""
    C_LIBRARY.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
