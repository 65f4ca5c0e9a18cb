"""Server optimizers: how the server moves the model along the aggregated direction."""

from turnout.core.registry import lookup
from turnout.pieces.server_optimizer.adaptive import ServerAdagrad as Adagrad
from turnout.pieces.server_optimizer.adaptive import ServerAdam as Adam
from turnout.pieces.server_optimizer.adaptive import ServerYogi as Yogi
from turnout.pieces.server_optimizer.amsgrad import ServerAmsgrad as Amsgrad
from turnout.pieces.server_optimizer.momentum import ServerMomentum as Momentum
from turnout.pieces.server_optimizer.momentum import ServerNesterov as Nesterov
from turnout.pieces.server_optimizer.sgd import Amplified, FedExP
from turnout.pieces.server_optimizer.sgd import ServerSgd as Sgd

__all__ = ["Adagrad", "Adam", "Amplified", "Amsgrad", "FedExP", "Momentum", "Nesterov", "Sgd", "Yogi"]

__getattr__ = lookup(__name__)
