//! Parts of generated programs: steps of expressions as C++.

use hipvit_graph::pattern::{Step, Type};

/// Returns the C++ type of a step.
pub(super) fn type_name(step: &Step) -> &'static str {
    match step.ty {
        Type::Bool => "bool",
        Type::Int => "int",
        Type::Float => "float",
    }
}

/// Returns the steps' variables as arguments.
pub(super) fn list(steps: &[usize]) -> String {
    let names: Vec<String> = steps.iter().map(|step| format!("v{step}")).collect();
    names.join(", ")
}

/// Returns a float as C++ that has all of its bits.
pub(super) fn float(bits: u32) -> String {
    let value = f32::from_bits(bits);
    if !value.is_finite() || value == 0.0 {
        return format!("float_of(0x{bits:08x}u)");
    }
    // Nine significant digits identify an f32.
    format!("{value:.8e}f")
}
