//! List to which each op adds its cases.

use std::sync::Arc;

use super::case::{Case, KernelForm, Work};
use crate::validate::config::Config;
use hipvit::graph::cases::{Operand, Scale};

/// Cases of these sizes, to which the ops add theirs.
pub(super) struct List {
    pub(super) config: Config,
    pub(super) cases: Vec<Case>,
}

impl List {
    pub(super) fn scale(&self) -> Scale {
        match (self.config.sizes(), self.config) {
            (Some(sizes), config) => Scale::Model {
                sizes,
                every_form: matches!(config, Config::Micro | Config::Small),
            },
            (None, Config::Heads) => Scale::Heads,
            (None, _) => Scale::Awkward,
        }
    }

    /// Returns true for the smallest set, which has each form of each kernel.
    pub(super) fn is_micro(&self) -> bool {
        self.config == Config::Micro
    }

    pub(super) fn push_kernel(&mut self, form: impl KernelForm + 'static, operands: Vec<Operand>) {
        self.push_work(Work::Kernel(Arc::new(form)), operands, false);
    }

    pub(super) fn push_work(&mut self, work: Work, operands: Vec<Operand>, in_arena: bool) {
        self.cases.push(Case {
            config: self.config,
            work,
            operands,
            in_arena,
            result: 0,
        });
    }
}
