"""Guards: how a client clips, noises or compresses its report before sending it. They form a chain on the update."""

from turnout.core.registry import lookup
from turnout.pieces.guard.bfloat16 import BFloat16
from turnout.pieces.guard.clip import Clip
from turnout.pieces.guard.clip_controls import ClipControls
from turnout.pieces.guard.noise_share import NoiseShare
from turnout.pieces.guard.power_sgd import PowerSgd
from turnout.pieces.guard.pruned_rank import PrunedRank
from turnout.pieces.guard.qsgd import Qsgd
from turnout.pieces.guard.random_k import RandomK
from turnout.pieces.guard.sign import Sign
from turnout.pieces.guard.top_k import TopK
from turnout.pieces.guard.truncated_rank import TruncatedRank, ranks_from_table

__all__ = [
    "BFloat16",
    "Clip",
    "ClipControls",
    "NoiseShare",
    "PowerSgd",
    "PrunedRank",
    "Qsgd",
    "RandomK",
    "Sign",
    "TopK",
    "TruncatedRank",
    "ranks_from_table",
]

__getattr__ = lookup(__name__)
