//! A launch of a custom op's kernel as a call.

use std::borrow::Cow;

use hipvit_graph::op::Custom;

use super::Value;
use crate::hip::{DeviceAddress, Launch};

/// A launch whose arguments have addresses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CustomCall {
    pub(super) op: Custom,
    pub(super) kernel: Cow<'static, str>,
    pub(super) geometry: Launch,
    pub(super) arguments: Vec<Passed>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Passed {
    Memory { address: DeviceAddress, bytes: usize },
    Value(Value),
}

impl CustomCall {
    /// The kernel's name.
    pub(crate) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// The grid and block.
    pub(crate) fn geometry(&self) -> Launch {
        self.geometry
    }
}
