"""The random images of the goldens: a generator that is short enough to be repeated in Rust bit for bit."""

import numpy as np
from PIL import Image


def noise(width, height, seed):
    """An RGB image whose bytes are the top bytes of a 64-bit linear congruential generator (Knuth's constants)."""
    state, data = seed, bytearray()
    for _ in range(width * height * 3):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        data.append(state >> 56)
    return Image.fromarray(np.frombuffer(bytes(data), np.uint8).reshape(height, width, 3))
