"""Guards: how a client clips, noises or compresses its report before sending it. They form a chain on the update."""

from turnout.core.registry import lookup as _lookup
from turnout.pieces.guard.clip import Clip as Clip
from turnout.pieces.guard.clip import ClipControls as ClipControls
from turnout.pieces.guard.clip import NoiseShare as NoiseShare
from turnout.pieces.guard.power_sgd import PowerSgd as PowerSgd
from turnout.pieces.guard.quantized import BFloat16 as BFloat16
from turnout.pieces.guard.quantized import Qsgd as Qsgd
from turnout.pieces.guard.quantized import Sign as Sign
from turnout.pieces.guard.sparse import RandomK as RandomK
from turnout.pieces.guard.sparse import TopK as TopK
from turnout.pieces.guard.truncated_rank import PrunedRank as PrunedRank
from turnout.pieces.guard.truncated_rank import TruncatedRank as TruncatedRank
from turnout.pieces.guard.truncated_rank import ranks_from_table as ranks_from_table

__getattr__ = _lookup(__name__)
