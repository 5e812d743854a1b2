//! Collectives of f32 in a group of ranks. Sums are in the order of the ranks.

use half::bf16;

use crate::hip::{self, Mesh};

/// Form of elements on the way between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    F32,
    Bf16,
}

impl Wire {
    fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::Bf16 => {
                let rounded = values.iter().map(|&value| bf16::from_f32(value));
                rounded.flat_map(bf16::to_le_bytes).collect()
            }
        }
    }

    /// Returns `len` elements. `None` if the bytes have another number.
    fn decode(self, bytes: &[u8], len: usize) -> Option<Vec<f32>> {
        let values: Vec<f32> = match self {
            Self::F32 => {
                let (values, rest) = bytes.as_chunks();
                let values = values.iter().map(|&value| f32::from_le_bytes(value));
                rest.is_empty().then(|| values.collect())?
            }
            Self::Bf16 => {
                let (values, rest) = bytes.as_chunks();
                let values = values.iter().map(|&value| bf16::from_le_bytes(value).to_f32());
                rest.is_empty().then(|| values.collect())?
            }
        };
        (values.len() == len).then_some(values)
    }
}

/// Some ranks of a mesh, with this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    ranks: Vec<usize>,
    /// Place of this rank.
    number: usize,
}

impl Group {
    pub(super) fn new(ranks: Vec<usize>, number: usize) -> Self {
        Self { ranks, number }
    }

    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Returns this rank's chunk.
    pub(super) fn own<'a>(&self, values: &'a [f32]) -> &'a [f32] {
        self.chunk(values, self.number)
    }

    /// Returns the chunk of the rank at place `number`. Chunks are equally long if the length is a multiple of the number of ranks.
    fn chunk<'a>(&self, values: &'a [f32], number: usize) -> &'a [f32] {
        let place = |number: usize| number * values.len() / self.len();
        &values[place(number)..place(number + 1)]
    }

    /// Returns the places of the other ranks, each rank starting with the next one.
    fn others(&self) -> impl Iterator<Item = usize> {
        let len = self.len();
        (1..len).map(move |step| (self.number + step) % len)
    }

    /// Sums the elements of all ranks, and returns this rank's chunk of the sums.
    pub(super) fn reduce_scatter(&self, mesh: &Mesh, values: &[f32], wire: Wire) -> hip::Result<Vec<f32>> {
        for number in self.others() {
            mesh.send(self.ranks[number], wire.encode(self.chunk(values, number)))?;
        }
        let own = self.own(values);
        let mut sum: Vec<f32> = Vec::new();
        for number in 0..self.len() {
            let received;
            let part = if number == self.number {
                own
            } else {
                received = self.receive(mesh, number, own.len(), wire)?;
                &received
            };
            if number == 0 {
                sum = part.to_vec();
                continue;
            }
            for (sum, &value) in sum.iter_mut().zip(part) {
                *sum += value;
            }
        }
        Ok(sum)
    }

    /// Returns the `len` elements of which each rank has its chunk.
    pub(super) fn all_gather(
        &self,
        mesh: &Mesh,
        own: &[f32],
        len: usize,
        wire: Wire,
    ) -> hip::Result<Vec<f32>> {
        let encoded = wire.encode(own);
        for number in self.others() {
            mesh.send(self.ranks[number], encoded.clone())?;
        }
        let place = |number: usize| number * len / self.len();
        let mut all = Vec::with_capacity(len);
        for number in 0..self.len() {
            let expected = place(number + 1) - place(number);
            if number == self.number {
                // Rounded as the others receive it.
                all.extend(wire.decode(&encoded, expected).unwrap_or_else(|| own.to_vec()));
            } else {
                all.extend(self.receive(mesh, number, expected, wire)?);
            }
        }
        Ok(all)
    }

    /// Returns the sums of the elements of all ranks.
    pub(super) fn all_reduce(&self, mesh: &Mesh, values: &[f32], wire: Wire) -> hip::Result<Vec<f32>> {
        let part = self.reduce_scatter(mesh, values, wire)?;
        self.all_gather(mesh, &part, values.len(), wire)
    }

    fn receive(&self, mesh: &Mesh, number: usize, len: usize, wire: Wire) -> hip::Result<Vec<f32>> {
        let rank = self.ranks[number];
        let bytes = mesh.receive(rank)?;
        wire.decode(&bytes, len).ok_or_else(|| {
            let reason = format!(
                "rank {rank} has sent {} bytes instead of {len} elements: it runs another step or version of hipvit",
                bytes.len()
            );
            hip::Error::argument("ranks", reason)
        })
    }
}
