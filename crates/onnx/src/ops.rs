//! Converters of operators, a file for each group.

mod attention;
mod cast;
mod constant;
mod conv;
mod einsum;
mod elementwise;
mod fused_attention;
mod gather;
mod layout;
mod matmul;
mod norm;
mod parts;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod scatter;
mod selecting;

use crate::context::Context;
use crate::error::Refusal;
use crate::value::Value;

pub(crate) use self::elementwise::{apply, copied};
pub(crate) use self::layout::{broadcast, expand_computed, expand_dims, reshape_to};
pub(crate) use self::parts::stack;

/// Appends what a node computes to the graph, and returns the node's results.
pub(crate) type Converter = fn(&mut Context<'_>) -> Result<Vec<Value>, Refusal>;

/// Operators of a group by name.
type Group = &'static [(&'static str, Converter)];

/// ONNX's own operators.
const ONNX: &[Group] = &[
    attention::OPS,
    cast::OPS,
    constant::OPS,
    conv::OPS,
    elementwise::OPS,
    gather::OPS,
    layout::OPS,
    matmul::OPS,
    norm::OPS,
    parts::OPS,
    pool::OPS,
    quantize::OPS,
    recurrent::OPS,
    reduce::OPS,
    scatter::OPS,
    selecting::OPS,
];

/// Operators of ONNX Runtime that exports contain.
const MICROSOFT: &[Group] = &[
    conv::MICROSOFT,
    elementwise::MICROSOFT,
    fused_attention::MICROSOFT,
    matmul::MICROSOFT,
    norm::MICROSOFT,
];

/// Returns the converter of an operator. `None` if it is not supported.
pub(crate) fn converter(domain: &str, op: &str) -> Option<Converter> {
    // The importer itself replaces branches and loops by their nodes.
    if domain.is_empty() && matches!(op, "If" | "Loop") {
        return Some(|_| Ok(Vec::new()));
    }
    let groups = match domain {
        "" => ONNX,
        "com.microsoft" => MICROSOFT,
        _ => return None,
    };
    let mut all = groups.iter().copied().flatten();
    all.find(|(name, _)| *name == op).map(|&(_, converter)| converter)
}
