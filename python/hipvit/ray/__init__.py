"""hipvit on a Ray cluster.

``process`` embeds or classifies a folder of images on all machines of a cluster, in blocks that are written once and never done
twice; ``python -m hipvit.ray`` is its command line. ``Predictor`` is the class for ``ray.data.Dataset.map_batches`` in programs of
your own, and ``hipvit.ray.serve`` a deployment of Ray Serve.
"""

from hipvit.ray.blocks import Block, Job
from hipvit.ray.predictor import Predictor
from hipvit.ray.run import process

__all__ = ["Block", "Job", "Predictor", "process"]
