//! Attention with patterns on the CPU.

use hipvit::DType;
use hipvit::exec::{ExecutorOptions, Placement};

use crate::support::patterns::{check, graph};

#[test]
fn captured_integers_are_inputs() {
    let options = ExecutorOptions::new(DType::F32);
    check(&Placement::Host.executor(&graph(), &options).unwrap(), DType::F32);
}
