"""Account for differential privacy: the epsilon of a run, and noise that is correlated over rounds."""

from turnout.privacy.accounting import Release as Release
from turnout.privacy.accounting import epsilon as epsilon
from turnout.privacy.accounting import noise_multiplier_for as noise_multiplier_for
from turnout.privacy.accounting import rounds_within as rounds_within
from turnout.privacy.answers import Answers as Answers
from turnout.privacy.buffered_toeplitz import BufferedToeplitz as BufferedToeplitz
from turnout.privacy.correlation import BandedSquareRoot as BandedSquareRoot
from turnout.privacy.correlation import Correlation as Correlation
from turnout.privacy.correlation import Independent as Independent
from turnout.privacy.plan import Plan as Plan
from turnout.privacy.plan import plan_of as plan_of
from turnout.privacy.sensitivity import prefix_sum_error as prefix_sum_error
from turnout.privacy.sensitivity import sensitivity as sensitivity
