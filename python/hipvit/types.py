"""Types of hipvit's arguments, for annotations."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any, Protocol, Union

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Float32", "Image", "Images", "PillowImage", "SupportsDLPack"]


class SupportsDLPack(Protocol):
    """An array or tensor of any library, such as ``torch.Tensor``."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class PillowImage(Protocol):
    """``PIL.Image.Image``."""

    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def mode(self) -> str: ...
    def tobytes(self, *args: Any, **kwargs: Any) -> bytes: ...


Float32 = npt.NDArray[np.float32]
Array = Union[npt.NDArray[Any], SupportsDLPack]
Image = Union[str, "PathLike[str]", bytes, bytearray, memoryview, PillowImage, Array]
Images = Union[Image, Iterable[Image]]
