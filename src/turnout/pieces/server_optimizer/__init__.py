"""How the server steps along the direction."""

from turnout.pieces.server_optimizer.adagrad import ServerAdagrad
from turnout.pieces.server_optimizer.adam import ServerAdam
from turnout.pieces.server_optimizer.amplified import Amplified
from turnout.pieces.server_optimizer.amsgrad import ServerAmsgrad
from turnout.pieces.server_optimizer.fedexp import FedExP
from turnout.pieces.server_optimizer.momentum import ServerMomentum
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.server_optimizer.yogi import ServerYogi

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
