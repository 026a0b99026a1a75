"""Weight files read through ordinary paths: plan(), stream() and load(). Knows nothing of hcfs but that it is a mount.

Needs torch or numpy for tensors; plan() needs neither.
"""

from hcfs.weights.errors import DamagedWeights, UnreadableWeights, UnsupportedTensor
from hcfs.weights.plan import Plan, plan
from hcfs.weights.read_ahead import StreamStatistics
from hcfs.weights.stream import TensorStream, load, stream

__all__ = [
    "DamagedWeights",
    "Plan",
    "StreamStatistics",
    "TensorStream",
    "UnreadableWeights",
    "UnsupportedTensor",
    "load",
    "plan",
    "stream",
]
