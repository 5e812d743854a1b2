//! Measures the candidates for each problem of a plan.

mod bench;
mod timer;

use self::bench::Bench;
use self::timer::Timer;
use super::candidate::Hipsparselt;
use super::executor::HipExecutor;
use super::libraries::Libraries;
use super::lower::{Call, LinearCall};
use crate::error::{Error, Result};
use crate::exec::select::{Choice, HIPSPARSELT, MIOPEN, PackedLayer, Problem, Store};
use crate::graph::plan::Plan;
use crate::hip::Dnn;

/// Number of fastest candidates of the first phase that the second phase measures again. It also measures the rule's candidate.
const FINALISTS: usize = 6;
/// Number of measurements per finalist. Each round measures all finalists in turn.
const ROUNDS: usize = 7;

/// Result of tuning one problem.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Tuned {
    /// The problem.
    pub shape: Problem,
    /// Number of steps of the plan that have this problem.
    pub steps: usize,
    /// Number of candidates.
    pub candidates: usize,
    /// Candidate that the rule selects without measurements.
    pub rule: Choice,
    /// Time of `rule` in microseconds. NaN if it failed to run.
    pub rule_us: f64,
    /// The fastest candidate.
    pub best: Choice,
    /// Time of `best` in microseconds.
    pub best_us: f64,
    /// The fastest candidate for dense weights. Set if `best` is for packed 2:4 sparse weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Dense>,
}

/// The fastest candidate for a dense weight.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Dense {
    /// The candidate.
    pub best: Choice,
    /// Time of `best` in microseconds.
    pub best_us: f64,
}

impl Tuned {
    /// Returns the times with packed and dense weights, at a batch size of `images`. `None` unless packed 2:4 sparse weights are the fastest.
    pub fn packed_layer(&self, images: usize) -> Option<PackedLayer> {
        let dense = self.dense?;
        Some(PackedLayer {
            images,
            problem: self.shape,
            packed: (self.best, self.best_us),
            dense: (dense.best, dense.best_us),
        })
    }
}

impl HipExecutor {
    /// Returns the problems of `plan`, and the number of steps that have each problem.
    ///
    /// # Errors
    ///
    /// Returns an error if the device cannot compute a step.
    pub fn problems(&self, plan: &Plan) -> Result<Vec<(Problem, usize)>> {
        let calls = self.problem_calls(plan)?;
        let problem = |(call, steps): (Call, usize)| Some((call.problem()?, steps));
        Ok(calls.into_iter().filter_map(problem).collect())
    }

    /// Returns one call per problem, and its number of steps. Linear layers come first, because a patch embedding uses the choice of its linear
    /// layer.
    fn problem_calls(&self, plan: &Plan) -> Result<Vec<(Call, usize)>> {
        let mut all: Vec<(Call, usize)> = Vec::new();
        let mut add = |call: Call| match all
            .iter_mut()
            .find(|(known, _)| known.problem() == call.problem())
        {
            Some((_, steps)) => *steps += 1,
            None => all.push((call, 1)),
        };
        for call in self.lowered(plan)?.into_iter().flat_map(|(_, calls)| calls) {
            match call {
                Call::Linear(_) | Call::Attention(_) | Call::PatternAttention(_) => add(call),
                Call::Projection(embedding) => {
                    add(Call::Linear(embedding.linear));
                    add(call);
                }
                Call::Conv(conv) => {
                    let parts = conv.own().unwrap_or_default();
                    parts
                        .into_iter()
                        .filter(|part| part.problem().is_some())
                        .for_each(&mut add);
                    add(call);
                }
                Call::Patches(_)
                | Call::Kernel(_)
                | Call::Gemm { .. }
                | Call::CopyRows(_)
                | Call::AllReduce(_)
                | Call::Collective(_)
                | Call::AwaitCollective(_)
                | Call::RankPart(_)
                | Call::Zero { .. }
                | Call::Custom(_)
                | Call::Generated(_) => {}
            }
        }
        all.sort_by_key(|(call, _)| !matches!(call, Call::Linear(_)));
        Ok(all)
    }

    /// Measures all candidates for the [problems](HipExecutor::problems) of `plan` on random values, and calls `observe` with each result.
    /// Skips problems that have only one candidate. Returns a store to [save](Store::save) for later sessions. Does not change the selection
    /// of this executor.
    ///
    /// # Errors
    ///
    /// - [`Error::Device`] if no problem has more than one candidate, because hipBLASLt and MIOpen are unavailable.
    /// - The error of the device, for example if memory runs out.
    pub fn tune(&self, plan: &Plan, mut observe: impl FnMut(&Tuned)) -> Result<Store> {
        let mut store = self.store();
        for (call, steps) in self.problem_calls(plan)? {
            let has_choice = |linear: &LinearCall| {
                self.selection.has_hipblaslt() || linear.sparse.is_some() || linear.int8.is_some()
            };
            if matches!(&call, Call::Linear(linear) if !has_choice(linear)) {
                continue;
            }
            if let Some(tuned) = self.tune_call(&call, steps, &store)? {
                store.insert(tuned.shape, tuned.best, tuned.best_us);
                observe(&tuned);
            }
        }
        if store.is_empty() {
            let no_hipblaslt = self.selection.note().map(str::to_owned);
            let no_miopen = Dnn::version(&self.device).err().map(|e| e.to_string());
            let reasons: Vec<String> = no_hipblaslt.into_iter().chain(no_miopen).collect();
            let reason = format!(
                "no call has more than one candidate, so there is nothing to tune ({}). Install hipBLASLt or MIOpen",
                reasons.join("; ")
            );
            return Err(Error::device(self.device.name(), reason));
        }
        Ok(store)
    }

    /// Returns an empty store for this device and its library versions.
    pub fn store(&self) -> Store {
        let key = self.selection.key().clone();
        let sparse = if self.constants.sparse().is_empty() {
            None
        } else {
            Hipsparselt::version(&self.memory.copier)
        };
        let key = key.with(MIOPEN, Dnn::version(&self.device).ok());
        Store::new(key.with(HIPSPARSELT, sparse))
    }

    /// Loads the measurements for this device and its library versions from the user's cache.
    pub fn cached_store(&self) -> Store {
        Store::current(self.store().key())
    }

    /// Measures the candidates for `call`. Returns `None` if there is only one. `store` selects the candidates for nested calls, such as the
    /// linear layer of a patch embedding.
    fn tune_call(&self, call: &Call, steps: usize, store: &Store) -> Result<Option<Tuned>> {
        let Some(problem) = call.problem() else {
            return Ok(None);
        };
        let rule = self.selection.rule(&problem);
        let mut libraries = Libraries::new(&self.device.stream()?, None);
        let candidates = libraries.choices(call, &self.kernels, self.selection.options())?;
        if candidates == [rule] {
            return Ok(None);
        }
        let selection = self.selection.measuring(store.clone());
        let constants = self.constants.reading();
        let mut bench = Bench::new(call, problem, libraries, selection, &self.kernels, constants)?;
        let count = candidates.len();
        // Skip candidates that fail to run.
        let mut first = Vec::new();
        for candidate in candidates {
            if let Ok(timer) = Timer::new(&mut bench, candidate) {
                first.push(timer);
            }
        }
        for timer in &mut first {
            timer.measure(&mut bench)?;
        }
        first.sort_by(|a, b| a.best().total_cmp(&b.best()));
        let is_dense = |timer: &Timer| !timer.candidate.is_for_packed();
        let first_dense = first.iter().position(is_dense);
        let keep = |(rank, timer): &(usize, Timer)| {
            *rank < FINALISTS || timer.candidate == rule || Some(*rank) == first_dense
        };
        let mut finalists: Vec<Timer> = first
            .into_iter()
            .enumerate()
            .filter(keep)
            .map(|(_, t)| t)
            .collect();
        for _ in 0..ROUNDS {
            for timer in &mut finalists {
                timer.measure(&mut bench)?;
            }
        }
        finalists.sort_by(|a, b| a.median().total_cmp(&b.median()));
        let best = finalists.first().ok_or_else(|| {
            Error::device(self.device.name(), format!("no candidate can compute {problem}"))
        })?;
        let dense = finalists.iter().find(|timer| is_dense(timer)).map(|timer| Dense {
            best: timer.candidate,
            best_us: timer.median(),
        });
        let by_rule = finalists.iter().find(|timer| timer.candidate == rule);
        Ok(Some(Tuned {
            shape: problem,
            steps,
            candidates: count,
            rule,
            rule_us: by_rule.map_or(f64::NAN, Timer::median),
            best: best.candidate,
            best_us: best.median(),
            dense: dense.filter(|_| best.candidate.is_for_packed()),
        }))
    }
}
