//! Figures, parameters and states of all ranks as a whole.

use hipvit::error::{Error, Result};
use hipvit::ops::exchange::part_len;
use hipvit::tensor::Tensor;

use super::Trainer;
use super::micro_batch::Tally;
use crate::ranks::Ranks;
use crate::ranks::messages::of_all_ranks;

impl Trainer {
    /// Returns true if each rank has a part of the states.
    pub(crate) fn is_divided(&self) -> bool {
        !self.divided.is_empty()
    }

    /// Returns true if this process writes the files of the run.
    pub(crate) fn writes(&self) -> bool {
        self.ranks.as_ref().is_none_or(Ranks::writes)
    }

    /// Returns the figures of all ranks, from this rank's.
    pub(super) fn tally_of_all_ranks(&self, own: Tally) -> Result<Tally> {
        match &self.ranks {
            Some(ranks) => Ok(Tally::of_ranks(of_all_ranks(&ranks.collectives, &own.message())?)),
            None => Ok(own),
        }
    }

    /// Returns the elements of a parameter or state. If each rank has a part, all ranks must call this at the same point.
    pub(crate) fn whole_state(&self, name: &str) -> Result<Vec<f32>> {
        let own = self.executor()?.state(name)?.to_f32().into_owned();
        let (Some(shape), Some(ranks)) = (self.divided.get(name), &self.ranks) else {
            return Ok(own);
        };
        let bytes = own.iter().flat_map(|value| value.to_le_bytes()).collect();
        let parts = ranks.collectives.gather(bytes)?;
        // Each group of ranks has all parts.
        let first = ranks.plan.rank - ranks.plan.number();
        let parts = parts.into_iter().skip(first).take(ranks.plan.group);
        let mut whole: Vec<f32> = parts
            .flat_map(|part| {
                let (values, _) = part.as_chunks();
                values
                    .iter()
                    .map(|&value| f32::from_le_bytes(value))
                    .collect::<Vec<_>>()
            })
            .collect();
        whole.truncate(shape.iter().product());
        Ok(whole)
    }

    /// Returns a whole parameter or state for a file. `None` if another rank writes it. If each rank has a part, all ranks must call this at
    /// the same point.
    pub(super) fn saved_state(&self, name: &str) -> Result<Option<Tensor>> {
        let Some(shape) = self.divided.get(name) else {
            return if self.writes() {
                self.executor()?.state(name).map(Some)
            } else {
                Ok(None)
            };
        };
        let whole = self.whole_state(name)?;
        if !self.writes() {
            return Ok(None);
        }
        let whole = Tensor::from_f32(shape.as_slice(), whole);
        whole
            .map(Some)
            .ok_or_else(|| Error::internal("states", format!("`{name}` has no elements of its shape")))
    }

    /// Returns the whole shape of a parameter or state.
    pub(super) fn whole_shape<'a>(&'a self, name: &str, shape: &'a [usize]) -> &'a [usize] {
        self.divided.get(name).map_or(shape, Vec::as_slice)
    }

    /// Sets this rank's part of a parameter or state, or all of it.
    pub(super) fn set_whole_state(&self, name: &str, whole: &Tensor) -> Result<()> {
        let Some(ranks) = self.ranks.as_ref().filter(|_| self.divided.contains_key(name)) else {
            return self.executor()?.set_state(name, whole);
        };
        let values = whole.to_f32();
        let len = part_len(values.len(), ranks.plan.group);
        let start = (ranks.plan.number() * len).min(values.len());
        let mut part = values[start..(start + len).min(values.len())].to_vec();
        part.resize(len, 0.0);
        let executor = self.executor()?;
        let graph = &executor.info().graph;
        let own = graph.states().find(|&id| graph.value(id).name == name);
        let shape = own.map_or(vec![len], |id| graph.value(id).shape.clone());
        let part = Tensor::from_f32(shape, part);
        let part = part.ok_or_else(|| Error::internal("states", format!("`{name}` has no elements")))?;
        executor.set_state(name, &part)
    }
}
