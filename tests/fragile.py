"""A checkpoint that dies, for tests of what survives."""

from __future__ import annotations

from candid.engines import Checkpoint

__all__ = ["FragileCheckpoint", "Interrupted"]


class Interrupted(Exception):
    """What a test raises instead of pulling the plug."""


class FragileCheckpoint(Checkpoint):
    """Writes after every step, and dies after the ``last`` one."""

    def __init__(self, path, last: int) -> None:
        super().__init__(path)
        self.left = last

    def due(self) -> bool:
        return True

    def write(self, state) -> None:
        super().write(state)
        self.left -= 1
        if self.left == 0:
            raise Interrupted
