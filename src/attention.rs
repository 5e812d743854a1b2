//! The attention compiler: attention whose score and mask are expressions, compiled for a GPU on first use.
//!
//! A [`Pattern`] has the expressions. On the CPU they are evaluated. For a GPU, [`source`] writes a program that
//! instantiates the template `hip/attention/pattern.hpp`, which shares its tiles with the kernels of plain attention. hipRTC or NVRTC
//! compiles it, and the code is cached in memory and on disk, as that of all kernels.
//!
//! In a graph, the op is [`PatternAttention`](crate::ops::PatternAttention). [`GpuAttention`] and [`CpuAttention`] compute it on the
//! caller's memory.

mod on_cpu;
mod on_gpu;

pub use hipvit_graph::pattern::{
    Bool, Float, Int, Number, Pattern, PatternError, Program, Type, bools, floats, ints, masks, scores,
};

pub use crate::kernels::pattern_attention::source::source;
pub use crate::kernels::pattern_attention::tile::AttentionTile;
pub use on_cpu::CpuAttention;
pub use on_gpu::GpuAttention;
