//! MIOpen on a stream: convolutions, the patch embedding as one, and attention.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Call, Called, Candidate, Choice, SelectOptions, Submitter, unusable};
use crate::error::{Error, Result};
use crate::exec::hip::lower::{AttentionCall, PatchEmbeddingCall};
use crate::exec::select::Problem;
use crate::hip::{Attention, Convolution, ConvolutionShape, DeviceBuffer, Dnn, Relayout, Stream};
use crate::kernels::{KernelCall, KernelError, Kernels, Strided};

/// MIOpen on a stream. The library is opened, and a solution is searched for, on first use. This never happens during graph capture, since
/// only the second run of a plan is captured.
pub(in crate::exec::hip) struct Miopen {
    stream: Stream,
    dnn: Option<Dnn>,
    solutions: HashMap<Wanted, Result<Solution, KernelError>>,
}

/// Key of a solution. For attention it includes the bits of the scale.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Wanted {
    problem: Problem,
    scale: u32,
}

/// A solution and its memory.
enum Solution {
    Convolution(Convolution),
    Attention {
        attention: Attention,
        /// Queries, keys, values and the result, each `[images, heads, tokens, head_dim]`, the only layout that MIOpen supports.
        packed: [DeviceBuffer<u8>; 4],
    },
}

impl Miopen {
    pub(in crate::exec::hip) fn new(stream: &Stream) -> Self {
        Self {
            stream: stream.clone(),
            dnn: None,
            solutions: HashMap::new(),
        }
    }

    /// Submits a call that has a solution.
    fn run(&mut self, call: &Call, to: &Submitter<'_>) -> Result<()> {
        let regions = to.regions;
        let launch = |kernel: KernelCall| kernel.launch(to.kernels, &self.stream, &regions.operands());
        let wanted = Wanted::of(call);
        let solution = wanted.and_then(|wanted| self.solutions.get_mut(&wanted));
        let (Some(dnn), Some(Ok(solution))) = (&mut self.dnn, solution) else {
            return Err(Error::internal("MIOpen", "has no solution yet"));
        };
        match (call, solution) {
            (Call::Patches(call), _) => launch(call.extract.as_image().into()),
            (Call::Projection(PatchEmbeddingCall { linear, .. }), Solution::Convolution(convolution)) => {
                let operands = [
                    regions.from(linear.x)?,
                    regions.from(linear.weight)?,
                    regions.from(linear.out)?,
                ];
                dnn.convolve(convolution, operands)?;
                let unfused = linear.unfused().map_err(unusable)?;
                unfused.kernel.map_or(Ok(()), launch)
            }
            (Call::Conv(call), Solution::Convolution(convolution)) => {
                let operands = [
                    regions.from(call.x)?,
                    regions.from(call.weight)?,
                    regions.from(call.sums())?,
                ];
                dnn.convolve(convolution, operands)?;
                let follows = call.finish().map_err(|reason| Error::kernel("conv", reason))?;
                follows.map_or(Ok(()), |kernel| launch(kernel.into()))
            }
            (Call::Attention(call), Solution::Attention { attention, packed }) => {
                if let Some(rope) = call.rope {
                    launch(rope.into())?;
                }
                let [from @ .., to] = call.operands;
                let [qkv @ .., out] = packed;
                for (from, packed) in from.into_iter().zip(&mut *qkv) {
                    let relayout = relayout(call, strided(call, from), dense(call));
                    dnn.relayout(relayout, regions.from(from.address)?, packed.writing())?;
                }
                let qkv = qkv.each_ref().map(DeviceBuffer::reading);
                dnn.attend(attention, qkv, out.writing())?;
                let relayout = relayout(call, dense(call), strided(call, to));
                Ok(dnn.relayout(relayout, out.reading(), regions.from(to.address)?)?)
            }
            _ => Err(Error::internal("MIOpen", "has a solution of something else")),
        }
    }
}

impl Candidate for Miopen {
    fn choices(&mut self, call: &Call, options: SelectOptions) -> Vec<Choice> {
        let prepared = self.prepare(Choice::Miopen, call, options.reproducible);
        prepared.is_ok().then_some(Choice::Miopen).into_iter().collect()
    }

    fn prepare(&mut self, _choice: Choice, call: &Call, _reproducible: bool) -> Result<(), KernelError> {
        let wanted =
            Wanted::of(call).ok_or_else(|| KernelError::unsupported("is not what MIOpen computes"))?;
        let Self {
            stream,
            dnn,
            solutions,
        } = self;
        let solution = match solutions.entry(wanted) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let found = find(stream, dnn, call);
                entry.insert(found.map_err(KernelError::library))
            }
        };
        solution.as_ref().map(|_| ()).map_err(KernelError::clone)
    }

    fn submit(&mut self, _choice: Choice, call: &Call, to: &mut Submitter<'_>) -> Result<Vec<Call>> {
        self.run(call, to)?;
        let problem = call.problem();
        to.record_call("MIOpen", || problem.map(|p| p.to_string()).unwrap_or_default())?;
        Ok(Vec::new())
    }

    fn describe(&self, _choice: Choice, call: &Call, kernels: &Kernels) -> (Vec<Called>, Vec<Call>) {
        let called = match call {
            Call::Patches(call) => {
                let kernel = Called::kernel(call.extract.as_image().into(), kernels);
                let name = format!("{} as an image", kernel.name);
                vec![Called { name, ..kernel }]
            }
            Call::Projection(call) => {
                let bias = Called::follows(&call.linear, kernels);
                let convolution = Called::library("MIOpen convolution");
                [convolution].into_iter().chain(bias).collect()
            }
            Call::Conv(call) => {
                let follows = call.finish().ok().flatten();
                let follows = follows.map(|kernel| Called::kernel(kernel.into(), kernels));
                let convolution = Called::library("MIOpen convolution");
                [convolution].into_iter().chain(follows).collect()
            }
            Call::Attention(call) => {
                let rope = call.rope.map(|rope| Called::kernel(rope.into(), kernels));
                let attention = Called::library("MIOpen attention");
                rope.into_iter().chain([attention]).collect()
            }
            _ => Vec::new(),
        };
        (called, Vec::new())
    }
}

impl Wanted {
    fn of(call: &Call) -> Option<Self> {
        let scale = match call {
            Call::Patches(_) | Call::Projection(_) | Call::Conv(_) => 0,
            Call::Attention(call) => call.spec.scale.to_bits(),
            _ => return None,
        };
        let problem = call.problem()?;
        Some(Self { problem, scale })
    }
}

fn find(stream: &Stream, dnn: &mut Option<Dnn>, call: &Call) -> Result<Solution> {
    let dnn = match dnn {
        Some(dnn) => dnn,
        none => none.insert(Dnn::new(stream)?),
    };
    match call {
        Call::Attention(call) => {
            let shape = call.shape();
            let bytes = shape.images * shape.heads * shape.tokens * shape.head_dim * shape.dtype.size();
            // Allocate memory only once a solution is found.
            let attention = dnn.find_attention(shape.scaled(call.spec.scale))?;
            let buffer = || stream.allocate::<u8>(bytes);
            let packed = [buffer()?, buffer()?, buffer()?, buffer()?];
            Ok(Solution::Attention { attention, packed })
        }
        Call::Patches(call) | Call::Projection(call) => {
            let shape = call.shape().convolution();
            let linear = call.shape().linear();
            let elements = [linear.m * linear.k, linear.n * linear.k, linear.m * linear.n];
            find_convolution(stream, dnn, shape, elements)
        }
        Call::Conv(call) => {
            let shape = call.shape();
            let Some(convolution) = shape.convolution() else {
                return Err(Error::argument("padding", "differs between the ends of an axis"));
            };
            find_convolution(stream, dnn, convolution, shape.elements())
        }
        _ => Err(Error::internal("MIOpen", "does not compute this")),
    }
}

/// Lets MIOpen measure its algorithms on separate memory, so that the results of a run are not overwritten. `elements` are those of image,
/// filter and result.
fn find_convolution(
    stream: &Stream,
    dnn: &mut Dnn,
    shape: ConvolutionShape,
    elements: [usize; 3],
) -> Result<Solution> {
    let zeroed = |elements: usize| stream.zeroed::<u8>(elements * shape.dtype.size());
    let (x, filter, mut y) = (zeroed(elements[0])?, zeroed(elements[1])?, zeroed(elements[2])?);
    let operands = [x.reading(), filter.reading(), y.writing()];
    Ok(Solution::Convolution(dnn.convolution(shape, operands)?))
}

fn relayout(call: &AttentionCall, from: [usize; 4], to: [usize; 4]) -> Relayout {
    let shape = call.shape();
    Relayout {
        shape: [shape.images, shape.heads, shape.tokens, shape.head_dim],
        from,
        to,
        dtype: shape.dtype,
    }
}

/// Strides in elements of image, head, token and channel, if the heads of a token are contiguous.
fn strided(call: &AttentionCall, of: Strided) -> [usize; 4] {
    // A single image has no stride, but MIOpen rejects 0.
    let image = of.image.max(of.tokens * of.token);
    [image, call.spec.head_dim, of.token, 1]
}

/// Strides in elements of image, head, token and channel, if the tokens of a head are contiguous.
fn dense(call: &AttentionCall) -> [usize; 4] {
    let shape = call.shape();
    let head = shape.tokens * shape.head_dim;
    [shape.heads * head, head, shape.head_dim, 1]
}
