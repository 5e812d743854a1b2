"""The exceptions. Each is a ``hipvit.Error``, and also the built-in exception that Python code expects."""

from __future__ import annotations

from typing import Optional

__all__ = [
    "ArgumentError",
    "ClosedError",
    "ConfigError",
    "DeviceError",
    "Error",
    "ForkError",
    "GraphError",
    "HubError",
    "ImageError",
    "InputOutputError",
    "InternalError",
    "NonFiniteError",
    "NotFoundError",
    "OutOfMemoryError",
    "WeightsError",
]


class Error(Exception):
    """Every error of hipvit. The message is one line that names the file, the tensor or the device."""

    index: Optional[int] = None
    """The position of the image that failed, if it is one's error."""

    def __str__(self) -> str:
        # OSError would create a different message from its fields.
        return str(self.args[0]) if self.args else ""


class ArgumentError(Error, ValueError):
    """An argument is out of range, or does not fit the model or the device."""


class ImageError(Error, ValueError):
    """An image cannot be decoded or used."""

    name: str = ""
    """The file, or ``image N``."""
    kind: str = ""
    """One of ``unsupported``, ``truncated``, ``damaged``, ``too_large``, ``size``."""


class ConfigError(Error, ValueError):
    """A configuration file is missing, is not JSON, or describes a model that is not supported."""


class WeightsError(Error, ValueError):
    """A weight file is unusable, or one of its tensors is missing, unexpected or of another shape."""

    tensor: Optional[str] = None
    """The tensor, if it is about one."""


class HubError(Error, FileNotFoundError):
    """A model of the Hugging Face hub is not in the local cache. The message has the command that downloads it."""


class InputOutputError(Error, OSError):
    """The operating system refused to read a file."""


class NotFoundError(Error, FileNotFoundError):
    """There is no such file or directory."""


class NonFiniteError(Error, ArithmeticError):
    """Results of a model that was loaded with ``strict=True`` are NaN or infinite."""


class GraphError(Error, RuntimeError):
    """A node of the model's graph cannot run."""


class DeviceError(Error, RuntimeError):
    """A GPU, its libraries or its code failed, or threads or memory of the host are not available."""


class OutOfMemoryError(DeviceError, MemoryError):
    """The GPU is out of memory."""


class InternalError(Error, RuntimeError):
    """hipvit has a bug. The message says what to report."""


class ForkError(Error, RuntimeError):
    """The process was forked from one that had used hipvit."""


class ClosedError(Error, RuntimeError):
    """The model was closed."""
