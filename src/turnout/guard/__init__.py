"""What a client does to its report before it leaves: a chain on the update."""

from turnout.guard.bfloat16 import BFloat16
from turnout.guard.clip import Clip
from turnout.guard.clip_controls import ClipControls
from turnout.guard.noise_share import NoiseShare
from turnout.guard.power_sgd import PowerSgd
from turnout.guard.qsgd import Qsgd
from turnout.guard.random_k import RandomK
from turnout.guard.sign import Sign
from turnout.guard.top_k import TopK

__all__ = ["BFloat16", "Clip", "ClipControls", "NoiseShare", "PowerSgd", "Qsgd", "RandomK", "Sign", "TopK"]
