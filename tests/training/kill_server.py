"""Forks runs that a test may kill: libraries are loaded once, so that a round takes less.

Reads lines ``n path``; for each it forks a process group that fills the shadow models of the run
with two worker processes, and answers with its process id. To a line ``wait id`` it answers with
the status of that process once it has ended.
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import torch

from memowidgets.progress import Progress
from tests.training.small import tiny_audit, trained


def fill(path: str, n: int) -> None:
    os.setpgid(0, 0)
    torch.set_num_threads(1)
    tiny_audit(path).run_shadows(n, processes=2, progress=Progress())


def warm_up() -> None:
    """Load what is imported on use, so that no forked process does."""
    with tempfile.TemporaryDirectory() as path, ThreadPoolExecutor(1) as executor:
        trained(path).run_shadows(1, executor, progress=Progress())


def main() -> None:
    torch.set_num_threads(1)
    warm_up()
    for line in sys.stdin:
        what, rest = line.split(maxsplit=1)
        if what == "wait":
            print(os.waitpid(int(rest), 0)[1], flush=True)
            continue
        child = os.fork()
        if child == 0:
            status = 1
            try:
                fill(rest.strip(), int(what))
                status = 0
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        print(child, flush=True)


if __name__ == "__main__":
    main()
