//! `elementwise`: expressions of operands, element by element.

use hipvit_graph::op::Elementwise;

use super::lower::Lower;

impl Lower for Elementwise {}
