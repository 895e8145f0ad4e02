"""The type checker that jaxtyping's import hook applies while tests run: beartype, for which an int is a float too.

The steps of a training run call the same functions with the same shapes, and checks take half as long as what they
check. So they are for the first step of each run, and for everything outside of training.
"""

from __future__ import annotations

from collections.abc import Sequence

from beartype import BeartypeConf, beartype
from jaxtyping import config

__all__ = ["check", "check_only_first_steps"]

check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check_only_first_steps() -> None:
    """From now on, leave the later steps of training runs unchecked."""
    from candid.engines import loop
    from candid.engines.moment import Moment
    from candid.engines.steppers import Stepper

    checked = loop.take_step

    def take_step(steppers: Sequence[Stepper], moment: Moment) -> float:
        if moment.step == 0:
            return checked(steppers, moment)
        before = config.jaxtyping_disable
        config.update("jaxtyping_disable", True)
        try:
            return checked(steppers, moment)
        finally:
            config.update("jaxtyping_disable", before)

    loop.take_step = take_step
