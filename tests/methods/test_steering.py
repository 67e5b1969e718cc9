"""What follows from a measurement of old tasks."""

import torch

from fopng.optim.tolerance import Steering


def test_what_has_lost_less_than_nothing_by_rounding_has_lost_nothing():
    steering = Steering.new(torch.tensor(0.0)).another_task()
    below, nothing = (steering.measured(torch.tensor(found), 0.1) for found in (-1e-9, 0.0))
    assert below.push == nothing.push
    assert below.factor.isfinite()
