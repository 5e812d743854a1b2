//! Exchanges in the graph of a step.
//!
//! Tensors are exchanged in buckets: many small messages take longer, and one large message could not overlap with the backward pass.

use std::collections::{BTreeMap, HashMap};

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, ParameterDivision, Role, ValueId};
use hipvit::ops::exchange::ExchangeKind;
use hipvit::ops::{Exchange, ExchangeResult};

use super::RankPlan;
use super::compression_states::Updates;

/// Largest number of elements of a bucket, unless it has one tensor: 25 MB in f32, as in PyTorch's `DistributedDataParallel`.
const MAX_BUCKET: usize = 25_000_000 / 4;

/// Smallest number of elements at which a bucket is full.
const MIN_BUCKET: usize = 16 << 10;

/// Number of buckets that small models have.
const BUCKETS: usize = 8;

/// Appends exchanges to the graph of a step.
pub(crate) struct Exchanges {
    pub(super) plan: RankPlan,
    /// Id of the next exchange.
    next: u32,
    bucket: usize,
    /// States of the compression.
    pub(super) updates: Updates,
}

/// A gradient, and the place of the node that computes it.
struct Gradient {
    index: usize,
    id: ValueId,
    producer: usize,
}

impl Exchanges {
    /// Creates the exchanges of a step that updates `elements` elements.
    pub(crate) fn new(plan: RankPlan, elements: usize) -> Self {
        Self {
            plan,
            next: 0,
            bucket: (elements / BUCKETS).clamp(MIN_BUCKET, MAX_BUCKET),
            updates: Updates::default(),
        }
    }

    /// Keeps only this rank's parts of the parameters. Returns their whole shapes by their names.
    pub(crate) fn divide_parameters(
        &mut self,
        graph: &mut Graph,
        parameters: &[ValueId],
        f32: bool,
    ) -> Result<BTreeMap<String, Vec<usize>>> {
        let whole = parameters.iter().map(|&id| {
            let value = graph.value(id);
            (value.name.clone(), value.shape.clone())
        });
        let whole = whole.collect();
        let division = ParameterDivision {
            ranks: self.plan.group,
            number: self.plan.number(),
            bucket: self.bucket / 2,
            first_id: self.next,
            f32_tensors: f32,
        };
        self.next = graph.divide_parameters(parameters, division)?;
        Ok(whole)
    }

    /// Returns the sums of the gradients over all ranks, or this rank's parts of them if each rank updates a part. With `condition`, nothing
    /// is exchanged in runs in which it is NaN. `f32`: the gradients are in f32 in plans of any dtype.
    pub(crate) fn sums(
        &mut self,
        graph: &mut Graph,
        gradients: &[Option<ValueId>],
        condition: Option<ValueId>,
        f32: bool,
    ) -> Result<Vec<Option<ValueId>>> {
        let kind = if self.plan.divides_states() {
            ExchangeKind::Scatter
        } else {
            ExchangeKind::Sum
        };
        self.exchanged(graph, gradients, (kind, condition, f32))
    }

    /// Returns the results of an exchange of this kind for each gradient.
    pub(super) fn exchanged(
        &mut self,
        graph: &mut Graph,
        gradients: &[Option<ValueId>],
        (kind, condition, f32): (ExchangeKind, Option<ValueId>, bool),
    ) -> Result<Vec<Option<ValueId>>> {
        let op = Exchange {
            id: 0,
            kind,
            ranks: self.plan.group,
            conditional: condition.is_some(),
            f32_tensors: f32,
            bf16_wire: self.plan.bf16_wire,
        };
        let mut sums = vec![None; gradients.len()];
        let mut started = Vec::new();
        for bucket in self.buckets(graph, gradients) {
            let tensors: Vec<ValueId> = bucket.iter().map(|gradient| gradient.id).collect();
            started.push((self.start(graph, op, condition, &tensors)?, bucket));
        }
        for (result, bucket) in started {
            for (gradient, sum) in bucket.iter().zip(result.append(graph)?) {
                sums[gradient.index] = Some(sum);
            }
        }
        Ok(sums)
    }

    /// Returns the gradients in the order in which the backward pass computes them, in buckets.
    fn buckets(&self, graph: &Graph, gradients: &[Option<ValueId>]) -> Vec<Vec<Gradient>> {
        let nodes = graph.nodes().iter().enumerate();
        let producers: HashMap<ValueId, usize> = nodes
            .flat_map(|(place, node)| node.outputs.iter().map(move |&id| (id, place)))
            .collect();
        let known = gradients.iter().enumerate().filter_map(|(index, id)| {
            let id = (*id)?;
            let producer = producers.get(&id).copied().unwrap_or(0);
            Some(Gradient { index, id, producer })
        });
        let mut known: Vec<Gradient> = known.collect();
        known.sort_by_key(|gradient| gradient.producer);
        let mut buckets = Vec::new();
        let (mut bucket, mut elements) = (Vec::new(), 0);
        for gradient in known {
            let len = graph.value(gradient.id).shape.iter().product::<usize>();
            if elements > 0 && elements + len > self.bucket {
                buckets.push(std::mem::take(&mut bucket));
                elements = 0;
            }
            bucket.push(gradient);
            elements += len;
        }
        if !bucket.is_empty() {
            buckets.push(bucket);
        }
        buckets
    }

    /// Returns the values of all ranks of a group, `[ranks]`, of a value with one element in f32.
    pub(crate) fn of_each_rank(&mut self, graph: &mut Graph, value: ValueId) -> Result<ValueId> {
        let op = self.gather(true);
        let mut started = self.start(graph, op, None, &[value])?;
        started.result.shapes = vec![vec![self.plan.group]];
        let all = started.append(graph)?;
        all.first()
            .copied()
            .ok_or_else(|| Error::internal("ranks", "an exchange has no result"))
    }

    fn gather(&self, f32: bool) -> Exchange {
        Exchange {
            id: 0,
            kind: ExchangeKind::Gather,
            ranks: self.plan.group,
            conditional: false,
            f32_tensors: f32,
            bf16_wire: false,
        }
    }

    fn start(
        &mut self,
        graph: &mut Graph,
        op: Exchange,
        condition: Option<ValueId>,
        tensors: &[ValueId],
    ) -> Result<Started> {
        let op = Exchange { id: self.next, ..op };
        self.next += 1;
        let shapes = tensors.iter().map(|&id| graph.value(id).shape.clone());
        let result = ExchangeResult {
            id: op.id,
            kind: op.kind,
            ranks: op.ranks,
            shapes: shapes.collect(),
            f32_tensors: op.f32_tensors,
        };
        let operands: Vec<ValueId> = condition.iter().chain(tensors).copied().collect();
        let bucket = graph.push(Role::Other, format!("exchange.{}", op.id), op, operands)?;
        Ok(Started { result, bucket })
    }
}

/// An exchange that has started.
struct Started {
    result: ExchangeResult,
    bucket: ValueId,
}

impl Started {
    /// Appends the end of the exchange. Returns its tensors.
    fn append(self, graph: &mut Graph) -> Result<Vec<ValueId>> {
        let name = format!("exchange.{}.result", self.result.id);
        let node = graph.push_node(Role::Other, name, self.result.into(), vec![self.bucket])?;
        Ok(node.outputs.clone())
    }
}

/// Weights whose parts the ranks have updated.
pub(crate) struct Gathers {
    exchanges: Exchanges,
    f32: bool,
    /// Weights of the current bucket, each with its updated part.
    bucket: Vec<(ValueId, ValueId)>,
    elements: usize,
    started: Vec<(Started, Vec<ValueId>)>,
}

impl Gathers {
    /// `f32`: the parts are in f32 in plans of any dtype.
    pub(crate) fn new(exchanges: Exchanges, f32: bool) -> Self {
        Self {
            exchanges,
            f32,
            bucket: Vec::new(),
            elements: 0,
            started: Vec::new(),
        }
    }

    /// Adds the updated part of a weight.
    pub(crate) fn add(&mut self, graph: &mut Graph, weight: ValueId, part: ValueId) -> Result<()> {
        self.bucket.push((weight, part));
        self.elements += graph.value(weight).shape.iter().product::<usize>();
        if self.elements >= self.exchanges.bucket {
            self.start(graph)?;
        }
        Ok(())
    }

    fn start(&mut self, graph: &mut Graph) -> Result<()> {
        let bucket = std::mem::take(&mut self.bucket);
        self.elements = 0;
        if bucket.is_empty() {
            return Ok(());
        }
        let (weights, parts): (Vec<ValueId>, Vec<ValueId>) = bucket.into_iter().unzip();
        let op = self.exchanges.gather(self.f32);
        let mut started = self.exchanges.start(graph, op, None, &parts)?;
        started.result.shapes = weights.iter().map(|&id| graph.value(id).shape.clone()).collect();
        self.started.push((started, weights));
        Ok(())
    }

    /// Writes the whole weights at the end of a run.
    pub(crate) fn finish(mut self, graph: &mut Graph) -> Result<()> {
        self.start(graph)?;
        for (started, weights) in self.started {
            for (weight, updated) in weights.into_iter().zip(started.append(graph)?) {
                graph.update(weight, updated)?;
            }
        }
        Ok(())
    }
}
