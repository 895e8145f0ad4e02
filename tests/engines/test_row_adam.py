"""Adam for parameters of which a step concerns some rows only."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import embedding

from candid.engines.steppers import RowAdam

VALUES = torch.arange(10.0).double().view(5, 2)
# Which rows each step looks up; some of them twice.
STEPS = [[0, 1], [1, 1, 3], [3], [0, 3, 1], [1]]


def slopes(rows) -> torch.Tensor:
    return torch.sin(torch.tensor(rows).double()).unsqueeze(-1) * torch.tensor([1.0, -3.0]).double()


def step(stepper, parameter, rows) -> None:
    parameter.grad = None
    (slopes(rows) * embedding(torch.tensor(rows), parameter, sparse=True).square()).sum().backward()
    stepper.advance(lambda: 0.0)


def test_each_row_moves_as_if_it_had_an_adam_of_its_own():
    parameter = nn.Parameter(VALUES.clone())
    stepper = RowAdam([parameter], 0.1)
    own = [nn.Parameter(values.clone()) for values in VALUES]
    optimizers = [torch.optim.Adam([values], 0.1) for values in own]
    for rows in STEPS:
        step(stepper, parameter, rows)
        for row in set(rows):
            count = rows.count(row)
            optimizers[row].zero_grad()
            (count * slopes([row])[0] * own[row].square()).sum().backward()
            optimizers[row].step()
    torch.testing.assert_close(parameter.detach(), torch.stack([values.detach() for values in own]))
    torch.testing.assert_close(parameter[[2, 4]], VALUES[[2, 4]], rtol=0, atol=0)


def test_it_goes_on_from_its_state():
    def run(interrupted: bool) -> torch.Tensor:
        parameter = nn.Parameter(VALUES.clone())
        stepper = RowAdam([parameter], 0.1)
        for number, rows in enumerate(STEPS):
            if interrupted and number == 2:
                earlier, stepper = stepper.state(), RowAdam([parameter], 0.1)
                stepper.restore(earlier)
            step(stepper, parameter, rows)
        return parameter.detach()

    torch.testing.assert_close(run(True), run(False), rtol=0, atol=0)


def test_a_rate_can_change_and_a_missing_gradient_is_no_step():
    parameter = nn.Parameter(VALUES.clone())
    stepper = RowAdam([parameter], 0.1)
    stepper.advance(lambda: 0.0)
    stepper.set_rate(0.0)
    step(stepper, parameter, STEPS[0])
    torch.testing.assert_close(parameter.detach(), VALUES, rtol=0, atol=0)
