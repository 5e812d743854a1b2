//! The handwritten digits that TinyViT32 was never trained on: a few sample images, and the whole held-out set that
//! `hipvit eval` measures accuracy on. Source and licence: `assets/README.md`.
