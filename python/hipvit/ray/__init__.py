"""hipvit on a Ray cluster.

- ``process`` embeds or classifies a folder of images on all machines of a cluster. It works in blocks, and a finished block is not
  repeated. ``python -m hipvit.ray`` is its command line.
- ``train`` trains a model on the workers of Ray Train.
- ``Predictor`` is the class for ``ray.data.Dataset.map_batches`` in other programs.
- ``hipvit.ray.serve`` is a deployment of Ray Serve.
"""

from hipvit.ray.blocks import Block, Job
from hipvit.ray.predictor import Predictor
from hipvit.ray.run import process
from hipvit.ray.training import train

__all__ = ["Block", "Job", "Predictor", "process", "train"]
