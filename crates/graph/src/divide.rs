//! Division of a training step's parameters among ranks: each rank keeps a part, and gathers the whole where it is read.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, OutputKind, Role};
use crate::op::exchange::{ExchangeKind, part_len};
use crate::op::{Exchange, ExchangeResult};
use crate::tensor::Tensor;
use crate::value::{Value, ValueId};

/// Division of parameters among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterDivision {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of this rank.
    pub number: usize,
    /// Number of elements that are gathered at once.
    pub bucket: usize,
    /// Id of the first [`Exchange`].
    pub first_id: u32,
    /// True if the parameters are in f32 in plans of any dtype.
    pub f32_tensors: bool,
}

/// Parameters that are gathered at once, for one pass.
struct Bucket {
    parameters: Vec<ValueId>,
    /// First node that reads one of them.
    first: usize,
}

impl Graph {
    /// Keeps of each of `parameters` only the part of this rank. The forward pass gathers the parameters before the first node that reads
    /// them, and the backward pass gathers them once more. An exchange starts while the nodes that read the previous ones are computed.
    /// Returns the id that follows those of the exchanges.
    ///
    /// Nodes up to [`OutputKind::Loss`] are the forward pass. Nodes that are appended later read the parts.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the graph has no loss, or a value is not a parameter with elements.
    pub fn divide_parameters(&mut self, parameters: &[ValueId], division: ParameterDivision) -> Result<u32> {
        let loss = self.outputs.iter().find(|(kind, _)| *kind == OutputKind::Loss);
        let loss = loss.and_then(|(_, id)| self.nodes.iter().position(|node| node.outputs.contains(id)));
        let forward = loss.ok_or_else(|| Error::graph("loss", "is not an output of the step"))? + 1;
        let mut nodes = std::mem::take(&mut self.nodes);
        let backward = nodes.split_off(forward);
        let mut id = division.first_id;
        for pass in [nodes, backward] {
            self.gather_in(pass, parameters, division, &mut id)?;
        }
        for &parameter in parameters {
            self.keep_part(parameter, division)?;
        }
        Ok(id)
    }

    /// Appends the nodes of a pass, and the exchanges before the nodes that read their tensors.
    fn gather_in(
        &mut self,
        mut pass: Vec<Node>,
        parameters: &[ValueId],
        division: ParameterDivision,
        id: &mut u32,
    ) -> Result<()> {
        let buckets = self.buckets(&pass, parameters, division.bucket);
        let mut pending: Option<(u32, ValueId)> = None;
        let mut next = 0;
        for index in 0..pass.len() {
            while let Some(bucket) = buckets.get(next).filter(|bucket| bucket.first == index) {
                let started = match pending.take() {
                    Some(started) => started,
                    None => self.start(&bucket.parameters, division, id)?,
                };
                next += 1;
                if let Some(following) = buckets.get(next) {
                    pending = Some(self.start(&following.parameters, division, id)?);
                }
                let gathered = self.finish(started, &bucket.parameters, division)?;
                for node in &mut pass[index..] {
                    for input in &mut node.inputs {
                        if let Some(place) = bucket.parameters.iter().position(|known| known == input) {
                            *input = gathered[place];
                        }
                    }
                }
            }
            self.nodes.push(pass[index].clone());
        }
        Ok(())
    }

    /// Returns the parameters that a pass reads, in the order in which it reads them first.
    fn buckets(&self, pass: &[Node], parameters: &[ValueId], elements: usize) -> Vec<Bucket> {
        let first = |id: ValueId| pass.iter().position(|node| node.inputs.contains(&id));
        let mut read: Vec<(usize, ValueId)> = parameters
            .iter()
            .filter_map(|&id| Some((first(id)?, id)))
            .collect();
        read.sort_unstable();
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut size = 0;
        for (first, id) in read {
            size += self.value(id).shape.iter().product::<usize>();
            match buckets.last_mut() {
                Some(bucket) if size <= elements => bucket.parameters.push(id),
                _ => {
                    size = self.value(id).shape.iter().product();
                    buckets.push(Bucket {
                        parameters: vec![id],
                        first,
                    });
                }
            }
        }
        buckets
    }

    /// Appends the start of an exchange. Returns its id and its bucket.
    fn start(
        &mut self,
        parameters: &[ValueId],
        division: ParameterDivision,
        next: &mut u32,
    ) -> Result<(u32, ValueId)> {
        let id = *next;
        *next += 1;
        let op = Exchange {
            id,
            kind: ExchangeKind::Gather,
            ranks: division.ranks,
            conditional: false,
            f32_tensors: division.f32_tensors,
            bf16_wire: false,
        };
        let parts = parameters
            .iter()
            .map(|&id| part_len(self.value(id).shape.iter().product(), division.ranks));
        let name = format!("exchange.{id}");
        let bucket = parts.sum::<usize>() * division.ranks;
        let bucket = self.push_value(Value::result(&name, 0, vec![bucket]));
        self.nodes.push(Node {
            name,
            op: op.into(),
            inputs: parameters.to_vec(),
            outputs: vec![bucket],
            role: Role::Other,
        });
        Ok((id, bucket))
    }

    /// Appends the end of an exchange. Returns the whole parameters.
    fn finish(
        &mut self,
        (id, bucket): (u32, ValueId),
        parameters: &[ValueId],
        division: ParameterDivision,
    ) -> Result<Vec<ValueId>> {
        let shapes = parameters.iter().map(|&id| self.value(id).shape.clone());
        let op = ExchangeResult {
            id,
            kind: ExchangeKind::Gather,
            ranks: division.ranks,
            shapes: shapes.collect(),
            f32_tensors: division.f32_tensors,
        };
        let name = format!("exchange.{id}.result");
        let node = self.push_node(Role::Other, name, op.into(), vec![bucket])?;
        Ok(node.outputs.clone())
    }

    /// Keeps this rank's part of a parameter, padded with zeros.
    fn keep_part(&mut self, parameter: ValueId, division: ParameterDivision) -> Result<()> {
        let Value { name, initial, .. } = self.value(parameter).clone();
        let missing = || Error::graph(&name, "is not a parameter with elements");
        let values = initial.as_ref().ok_or_else(missing)?.to_f32();
        let len = part_len(values.len(), division.ranks);
        let start = (division.number * len).min(values.len());
        let mut part = values[start..(start + len).min(values.len())].to_vec();
        part.resize(len, 0.0);
        let part = Tensor::from_f32([len], part).ok_or_else(missing)?;
        let value = &mut self.values[parameter.index()];
        value.shape = vec![len];
        value.initial = Some(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::op::Add;

    #[test]
    fn each_pass_gathers_before_the_first_reader_and_ahead() {
        let mut graph = Graph::new("step", [1, 1, 1, 3], DType::F32);
        let parameter = |graph: &mut Graph, name: &str| {
            graph.parameter(name, Tensor::from_f32([3], vec![1.0, 2.0, 3.0]).unwrap())
        };
        let [a, b] = ["a", "b"].map(|name| parameter(&mut graph, name));
        let mut last = parameter(&mut graph, "frozen");
        for (name, weight) in [("f0", a), ("f1", b), ("loss", a), ("g0", b), ("g1", last)] {
            last = graph.push(Role::Other, name, Add, [last, weight]).unwrap();
            if name == "loss" {
                graph.set_output(OutputKind::Loss, last);
            }
        }
        let division = ParameterDivision {
            ranks: 2,
            number: 1,
            bucket: 3,
            first_id: 4,
            f32_tensors: true,
        };
        assert_eq!(graph.divide_parameters(&[a, b], division).unwrap(), 7);
        let names: Vec<&str> = graph.nodes().iter().map(|node| node.name.as_str()).collect();
        let expected = [
            "exchange.4",
            "exchange.5",
            "exchange.4.result",
            "f0",
            "exchange.5.result",
            "f1",
            "loss",
            "exchange.6",
            "exchange.6.result",
            "g0",
            "g1",
        ];
        assert_eq!(names, expected);
        graph.shapes(1).unwrap();
        // The second part, which is padded.
        let part = graph.value(a).initial.as_ref().unwrap();
        assert_eq!((part.shape(), &*part.to_f32()), (&[2][..], &[3.0, 0.0][..]));
        let reads = |name: &str, id| {
            let node = graph.nodes().iter().find(|node| node.name == name).unwrap();
            node.inputs.contains(&id)
        };
        assert!(!reads("f0", a) && !reads("loss", a) && !reads("g0", b) && reads("exchange.6", b));
    }
}
