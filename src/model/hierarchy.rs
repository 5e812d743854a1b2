//! Models whose stages have different grids of tokens.

use super::hiera::Hiera;
use super::invalid::Invalid;
use super::positions::Grid;
use super::stage_sizes::StageSizes;
use super::swin::{self, Swin};

/// Stages of a model. Their grids become smaller, and their channels more.
#[derive(Clone, Debug)]
pub(super) enum Hierarchy {
    Swin(Swin),
    Hiera(Hiera),
}

impl Hierarchy {
    /// Returns the sizes of each stage.
    pub(super) fn sizes(&self) -> Vec<StageSizes> {
        match self {
            Self::Swin(swin) => swin.stages.iter().map(swin::Stage::sizes).collect(),
            Self::Hiera(hiera) => hiera.stages.iter().map(|stage| stage.sizes).collect(),
        }
    }

    /// Returns the rows and columns of tokens after the last block.
    pub(super) fn last_grid(&self) -> Option<Grid> {
        match self {
            Self::Swin(swin) => swin.stages.last().map(|stage| stage.grid),
            Self::Hiera(hiera) => hiera.stages.last().map(|stage| stage.grid),
        }
    }

    /// Estimates the floating-point operations of one image.
    pub(super) fn flops(&self) -> u128 {
        let stages: Vec<u128> = match self {
            Self::Swin(swin) => swin.stages.iter().map(swin::Stage::flops).collect(),
            Self::Hiera(hiera) => hiera.flops(),
        };
        stages.into_iter().fold(0, u128::saturating_add)
    }

    /// Checks that the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Swin(swin) => swin.check(),
            Self::Hiera(hiera) => hiera.check(),
        }
    }
}
