"""The environment is plain data that a result can carry."""

import json
import socket

import torch

from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.result import RunResult, result_text
from sample_runs import config


def test_it_fits_into_a_result_and_names_no_machine():
    environment = describe_environment(torch.device("cpu"))
    there = RunResult(config=config(), accuracy=((1.0,),), environment=environment)
    assert json.loads(result_text(there))["environment"] == environment
    assert environment["threads"] == torch.get_num_threads()
    assert socket.gethostname() not in environment.values()
