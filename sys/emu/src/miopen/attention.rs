//! Multi-head attention by MIOpen's find 2.0 interface, forward.
//!
//! MIOpen states it for training and eight-bit floats too: each operand has a scale, and the maxima and sums of the rows are
//! results. There is no dropout, and as in MIOpen all tensors have to be packed.

use std::collections::HashMap;
use std::ffi::c_void;

use gcnrun::{FaultKind, Memory};
use hip_provider::miopen::{BAD_PARAMETER as BAD, TensorDescriptor, UNSUPPORTED, put, run, tensor};
use hip_provider::{Objects, export};
use hipvit_sys::miopen::{
    miopenFindOptions_t, miopenHandle_t, miopenMhaDescriptor_t, miopenProblem_t, miopenProblemDirection_t,
    miopenSolution_t, miopenStatus_t, miopenTensorArgument_t, miopenTensorArgumentId_t as Id,
    miopenTensorDescriptor_t,
};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use super::tensor::{DeviceMemory as _, DeviceTensor};
use super::{stream, submitted};
use crate::compute::{Element, Real as _, write};

/// The scale of an attention, until a problem is made of it. MIOpen never destroys one.
static DESCRIPTORS: Objects<f32> = Objects::new();
static PROBLEMS: Objects<Problem> = Objects::new();
static SOLUTIONS: Objects<Problem> = Objects::new();

const OPERANDS: [Id; 4] = [
    Id::miopenTensorMhaQ,
    Id::miopenTensorMhaK,
    Id::miopenTensorMhaV,
    Id::miopenTensorMhaO,
];

/// One number each.
const SCALES: [Id; 6] = [
    Id::miopenTensorMhaDescaleQ,
    Id::miopenTensorMhaDescaleK,
    Id::miopenTensorMhaDescaleV,
    Id::miopenTensorMhaDescaleS,
    Id::miopenTensorMhaScaleS,
    Id::miopenTensorMhaScaleO,
];

/// Other tensors that a problem has to describe.
const OTHERS: [Id; 7] = [
    Id::miopenTensorMhaDropoutProbability,
    Id::miopenTensorMhaDropoutSeed,
    Id::miopenTensorMhaDropoutOffset,
    Id::miopenTensorMhaAmaxO,
    Id::miopenTensorMhaAmaxS,
    Id::miopenTensorMhaM,
    Id::miopenTensorMhaZInv,
];

/// An attention, and its tensors' descriptions by their roles.
#[derive(Clone, Debug)]
struct Problem {
    scale: f32,
    tensors: HashMap<u32, TensorDescriptor>,
}

impl Problem {
    fn tensor(&self, id: Id) -> Result<&TensorDescriptor, miopenStatus_t> {
        self.tensors.get(&id.0).ok_or(BAD)
    }

    /// Batch, heads, tokens and channels of a head; `None` if there is no solution.
    fn extents(&self) -> Result<Option<[usize; 4]>, miopenStatus_t> {
        let [q, k, v, o] = OPERANDS.map(|id| self.tensor(id));
        let q = q?.clone();
        for id in SCALES.into_iter().chain(OTHERS) {
            self.tensor(id)?;
        }
        let solved = matches!(q.element()?, Element::F32 | Element::F16 | Element::Bf16) && q.is_packed();
        let same = [k?, v?, o?].into_iter().all(|other| *other == q);
        Ok(<[usize; 4]>::try_from(q.lengths).ok().filter(|_| solved && same))
    }

    /// Bytes of workspace: the scores, in f32.
    fn workspace(&self) -> Result<usize, miopenStatus_t> {
        let [batch, heads, tokens, _] = self.extents()?.ok_or(UNSUPPORTED)?;
        Ok(batch * heads * tokens * tokens * size_of::<f32>())
    }
}

/// An attention to run.
struct Work {
    extents: [usize; 4],
    scale: f32,
    placed: HashMap<u32, DeviceTensor>,
    workspace: u64,
}

impl Work {
    fn load(&self, memory: &Memory, id: Id) -> Result<Vec<f32>, FaultKind> {
        match self.placed.get(&id.0) {
            Some(tensor) => tensor.load::<f32>(memory),
            None => Err(missing(id)),
        }
    }

    fn number(&self, memory: &Memory, id: Id) -> Result<f32, FaultKind> {
        let values = self.load(memory, id)?;
        values.first().copied().ok_or_else(|| missing(id))
    }

    fn store(&self, memory: &Memory, id: Id, values: &[f32]) -> Result<(), FaultKind> {
        match self.placed.get(&id.0) {
            Some(tensor) => tensor.store(memory, values),
            None => Err(missing(id)),
        }
    }

    /// In f32, each result rounded once.
    fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        let [batch, heads, tokens, channels] = self.extents;
        if self.number(memory, Id::miopenTensorMhaDropoutProbability)? != 0.0 {
            let what = "attention with dropout, which the emulated MIOpen does not have".into();
            return Err(FaultKind::Configuration { what });
        }
        let of = |id| self.number(memory, id);
        let scale = self.scale * of(Id::miopenTensorMhaDescaleQ)? * of(Id::miopenTensorMhaDescaleK)?;
        let weighted = of(Id::miopenTensorMhaScaleS)?;
        let result = of(Id::miopenTensorMhaDescaleS)?
            * of(Id::miopenTensorMhaDescaleV)?
            * of(Id::miopenTensorMhaScaleO)?;
        let [q, k, v] = [
            self.load(memory, Id::miopenTensorMhaQ)?,
            self.load(memory, Id::miopenTensorMhaK)?,
            self.load(memory, Id::miopenTensorMhaV)?,
        ];
        let (head, square) = (tokens * channels, tokens * tokens);
        let mut scores = vec![0.0; batch * heads * square];
        let mut out = vec![0.0; q.len()];
        let (mut maxima, mut inverse_sums) = (Vec::new(), Vec::new());
        for index in 0..batch * heads {
            let part = index * head..(index + 1) * head;
            let [q, k, v] =
                [&q, &k, &v].map(|all| ArrayView2::from_shape((tokens, channels), &all[part.clone()]));
            let mut weights: Array2<f32> = q.map_err(shape)?.dot(&k.map_err(shape)?.t()) * scale;
            for mut row in weights.rows_mut() {
                let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                row.mapv_inplace(|score| (score - largest).exp());
                let inverse = 1.0 / row.sum();
                row.mapv_inplace(|weight| weight * inverse * weighted);
                maxima.push(largest);
                inverse_sums.push(inverse);
            }
            let mut to = ArrayViewMut2::from_shape((tokens, channels), &mut out[part]).map_err(shape)?;
            to.assign(&(weights.dot(&v.map_err(shape)?) * result));
            let (values, _) = weights.into_raw_vec_and_offset();
            scores[index * square..][..square].copy_from_slice(&values);
        }
        write(memory, self.workspace, &f32::encode(Element::F32, &scores))?;
        let largest = |values: &[f32]| values.iter().fold(0f32, |most, value| most.max(value.abs()));
        self.store(memory, Id::miopenTensorMhaAmaxS, &[largest(&scores)])?;
        self.store(memory, Id::miopenTensorMhaAmaxO, &[largest(&out)])?;
        self.store(memory, Id::miopenTensorMhaM, &maxima)?;
        self.store(memory, Id::miopenTensorMhaZInv, &inverse_sums)?;
        self.store(memory, Id::miopenTensorMhaO, &out)
    }
}

fn missing(id: Id) -> FaultKind {
    let what = format!("attention without its tensor {}", id.0);
    FaultKind::Configuration { what }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn shape(error: ndarray::ShapeError) -> FaultKind {
    let what = format!("attention whose tensors do not match: {error}");
    FaultKind::Configuration { what }
}

export! { miopen, miopenStatus_t, run;
    fn miopenCreateMhaDescriptor(to: *mut miopenMhaDescriptor_t) {
        if to.is_null() {
            return Err(BAD);
        }
        put(to, DESCRIPTORS.add(1.0))
    }

    fn miopenSetMhaDescriptor(of: miopenMhaDescriptor_t, scale: f32) {
        DESCRIPTORS.change(of, |old| *old = scale).ok_or(BAD)
    }

    fn miopenGetMhaDescriptor(of: miopenMhaDescriptor_t, scale: *mut f32) {
        put(scale, DESCRIPTORS.get(of).ok_or(BAD)?)
    }

    fn miopenCreateMhaProblem(
        to: *mut miopenProblem_t, of: miopenMhaDescriptor_t, direction: miopenProblemDirection_t,
    ) {
        if direction != miopenProblemDirection_t::miopenProblemDirectionForward {
            return Err(UNSUPPORTED);
        }
        let scale = DESCRIPTORS.get(of).ok_or(BAD)?;
        if to.is_null() {
            return Err(BAD);
        }
        put(to, PROBLEMS.add(Problem { scale, tensors: HashMap::new() }))
    }

    fn miopenDestroyProblem(of: miopenProblem_t) {
        PROBLEMS.remove(of).map(drop).ok_or(BAD)
    }

    fn miopenSetProblemTensorDescriptor(of: miopenProblem_t, id: Id, desc: miopenTensorDescriptor_t) {
        let tensor = tensor(desc)?;
        PROBLEMS.change(of, |problem| problem.tensors.insert(id.0, tensor)).map(drop).ok_or(BAD)
    }

    /// One solution; none for other types, and for tensors that are not packed.
    fn miopenFindSolutions(
        of: miopenHandle_t, problem: miopenProblem_t, _options: miopenFindOptions_t, solutions: *mut miopenSolution_t,
        count: *mut usize, capacity: usize,
    ) {
        stream(of)?;
        let problem = PROBLEMS.get(problem).ok_or(BAD)?;
        if capacity == 0 || problem.extents()?.is_none() {
            return put(count, 0);
        }
        if solutions.is_null() {
            return Err(BAD);
        }
        put(solutions, SOLUTIONS.add(problem))?;
        put(count, 1)
    }

    fn miopenDestroySolution(of: miopenSolution_t) {
        SOLUTIONS.remove(of).map(drop).ok_or(BAD)
    }

    fn miopenGetSolutionWorkspaceSize(of: miopenSolution_t, size: *mut usize) {
        put(size, SOLUTIONS.get(of).ok_or(BAD)?.workspace()?)
    }

    /// The tensors are as the problem described them: other descriptions are not supported.
    fn miopenRunSolution(
        of: miopenHandle_t, solution: miopenSolution_t, count: usize, arguments: *const miopenTensorArgument_t,
        workspace: *mut c_void, size: usize,
    ) {
        let problem = SOLUTIONS.get(solution).ok_or(BAD)?;
        let extents = problem.extents()?.ok_or(UNSUPPORTED)?;
        if arguments.is_null() || workspace.is_null() || size < problem.workspace()? {
            return Err(BAD);
        }
        let mut placed = HashMap::new();
        // The caller's array has as many.
        for argument in std::slice::from_raw_parts(arguments, count) {
            if !argument.descriptor.is_null() {
                return Err(UNSUPPORTED);
            }
            placed.insert(argument.id.0, problem.tensor(argument.id)?.clone().at(argument.buffer)?);
        }
        let needed = OPERANDS.into_iter().chain(SCALES).chain(OTHERS);
        if needed.into_iter().any(|id| !placed.contains_key(&id.0)) {
            return Err(BAD);
        }
        let workspace = workspace.expose_provenance() as u64;
        let work = Work { extents, scale: problem.scale, placed, workspace };
        submitted(of, "miopenRunSolution", move |memory| work.run(memory))
    }
}
