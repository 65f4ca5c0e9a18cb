"""How the server steps along the direction."""

from turnout.server_optimizer.adagrad import ServerAdagrad
from turnout.server_optimizer.adam import ServerAdam
from turnout.server_optimizer.amplified import Amplified
from turnout.server_optimizer.amsgrad import ServerAmsgrad
from turnout.server_optimizer.fedexp import FedExP
from turnout.server_optimizer.momentum import ServerMomentum
from turnout.server_optimizer.sgd import ServerSgd
from turnout.server_optimizer.yogi import ServerYogi

__all__ = [
    "Amplified",
    "FedExP",
    "ServerAdagrad",
    "ServerAdam",
    "ServerAmsgrad",
    "ServerMomentum",
    "ServerSgd",
    "ServerYogi",
]
