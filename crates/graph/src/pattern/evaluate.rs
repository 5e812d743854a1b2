//! Evaluation of programs, a row of keys at a time.

use super::error::PatternError;
use super::expression::{Index, Number};
use super::operator::Operator;
use super::program::{Dependencies, Instruction, Program};
use super::types::Type;
use crate::array::{Array, Real};

/// Extents of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Number of heads.
    pub heads: usize,
    /// Number of queries of a head.
    pub queries: usize,
    /// Number of keys of a head.
    pub keys: usize,
}

/// The scores of one query: the scores of all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index of the image.
    pub batch: usize,
    /// Index of the head.
    pub head: usize,
    /// Index of the query.
    pub query: usize,
}

/// A captured tensor, row-major. Integers are stored as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a, T> {
    /// Extents, outermost first.
    pub shape: &'a [usize],
    /// Elements.
    pub values: &'a [T],
}

impl<'a, T: Real> From<&'a Array<T>> for Captured<'a, T> {
    fn from(array: &'a Array<T>) -> Self {
        Self {
            shape: array.shape(),
            values: array.values(),
        }
    }
}

/// Values of a step: one per key, or one for all keys.
#[derive(Clone, Debug)]
enum Register<T> {
    Bool(Vec<bool>),
    Int(Vec<i32>),
    Float(Vec<T>),
}

/// Computes steps of a program for rows of scores. Steps are computed again only if what they depend on has changed.
#[derive(Clone, Debug)]
pub struct Evaluator<'a, T> {
    program: &'a Program,
    tensors: Vec<Captured<'a, T>>,
    scalars: Vec<Number>,
    extents: Extents,
    /// Steps to compute, in order.
    needed: Vec<usize>,
    registers: Vec<Register<T>>,
    /// Row of the current values.
    row: Option<Row>,
}

impl<'a, T: Real> Evaluator<'a, T> {
    /// Prepares to compute the steps `outputs` of `program`. `tensors` and `scalars` are in the program's order.
    ///
    /// # Errors
    ///
    /// [`PatternError::Captured`] if tensors or scalars do not fit the program.
    pub fn new(
        program: &'a Program,
        outputs: &[usize],
        tensors: &[Captured<'a, T>],
        scalars: &[Number],
        extents: Extents,
    ) -> Result<Self, PatternError> {
        let shapes: Vec<&[usize]> = tensors.iter().map(|tensor| tensor.shape).collect();
        program.check_tensors(&shapes)?;
        program.check_scalars(scalars)?;
        let mut is_needed = vec![false; program.steps().len()];
        outputs
            .iter()
            .for_each(|&step| mark(program, step, &mut is_needed));
        let register = |ty| match ty {
            Type::Bool => Register::Bool(Vec::new()),
            Type::Int => Register::Int(Vec::new()),
            Type::Float => Register::Float(Vec::new()),
        };
        Ok(Self {
            program,
            tensors: tensors.to_vec(),
            scalars: scalars.to_vec(),
            extents,
            needed: (0..is_needed.len()).filter(|&step| is_needed[step]).collect(),
            registers: program.steps().iter().map(|step| register(step.ty)).collect(),
            row: None,
        })
    }

    /// Computes the steps for a row. `scores` are those of the row before the pattern, for outputs that depend on them.
    pub fn evaluate(&mut self, row: Row, scores: &[T]) {
        let mut changed = Dependencies::SCORE;
        let all = [Dependencies::BATCH, Dependencies::HEAD, Dependencies::QUERY];
        let is_changed = match self.row {
            Some(before) => [
                before.batch != row.batch,
                before.head != row.head,
                before.query != row.query,
            ],
            None => [true; 3],
        };
        for (dependency, _) in all.into_iter().zip(is_changed).filter(|(_, changed)| *changed) {
            changed = changed.union(dependency);
        }
        let is_first = self.row.is_none();
        self.row = Some(row);
        for index in 0..self.needed.len() {
            let step = self.needed[index];
            if is_first || self.program.steps()[step].dependencies.intersects(changed) {
                self.registers[step] = self.compute(step, row, scores);
            }
        }
    }

    /// Returns the truth value of an output for key `key` of the last row.
    pub fn is_true(&self, step: usize, key: usize) -> bool {
        at(self.bools(step), key)
    }

    /// Returns the float of an output for key `key` of the last row.
    pub fn float(&self, step: usize, key: usize) -> T {
        at(self.floats(step), key)
    }

    /// Copies the floats of an output for some keys of the last row, as many as `to` has.
    pub fn copy_floats(&self, step: usize, first: usize, to: &mut [T]) {
        match self.floats(step) {
            [only] => to.fill(*only),
            floats => to.copy_from_slice(&floats[first..first + to.len()]),
        }
    }

    /// Returns the offset of the element that an output reads for key `key` of the last row. `None` if the output is no load.
    pub fn offset(&self, step: usize, key: usize) -> Option<usize> {
        match &self.program.steps()[step].instruction {
            Instruction::Load { tensor, index } => Some(self.element(*tensor, index, key)),
            _ => None,
        }
    }

    fn bools(&self, step: usize) -> &[bool] {
        match &self.registers[step] {
            Register::Bool(values) => values,
            _ => &[],
        }
    }

    fn ints(&self, step: usize) -> &[i32] {
        match &self.registers[step] {
            Register::Int(values) => values,
            _ => &[],
        }
    }

    fn floats(&self, step: usize) -> &[T] {
        match &self.registers[step] {
            Register::Float(values) => values,
            _ => &[],
        }
    }

    fn compute(&self, step: usize, row: Row, scores: &[T]) -> Register<T> {
        let keys = self.extents.keys;
        let int = |value: usize| Register::Int(vec![value as i32]);
        match &self.program.steps()[step].instruction {
            Instruction::Score => Register::Float(scores.to_vec()),
            // A pattern has no operands.
            Instruction::Operand(_) => Register::Float(Vec::new()),
            Instruction::Index(Index::Batch) => int(row.batch),
            Instruction::Index(Index::Head) => int(row.head),
            Instruction::Index(Index::Query) => int(row.query),
            Instruction::Index(Index::Key) => Register::Int((0..keys as i32).collect()),
            Instruction::Index(Index::Heads) => int(self.extents.heads),
            Instruction::Index(Index::Queries) => int(self.extents.queries),
            Instruction::Index(Index::Keys) => int(keys),
            Instruction::Bool(value) => Register::Bool(vec![*value]),
            Instruction::Int(value) => Register::Int(vec![*value]),
            Instruction::Float(bits) => Register::Float(vec![T::from_f32(f32::from_bits(*bits))]),
            Instruction::Scalar(index) => match self.scalars[*index] {
                Number::Int(value) => Register::Int(vec![value]),
                Number::Float(value) => Register::Float(vec![T::from_f32(value)]),
            },
            Instruction::Load { tensor, index } => {
                let elements = self.load(*tensor, index);
                match self.program.tensors()[*tensor].ty {
                    Type::Float => Register::Float(elements),
                    Type::Int | Type::Bool => {
                        Register::Int(elements.into_iter().map(|value| value.to_f64() as i32).collect())
                    }
                }
            }
            Instruction::IntTable { values, index } => {
                let indices = self.ints(*index).iter();
                Register::Int(indices.map(|&index| values[clamp(index, values.len())]).collect())
            }
            Instruction::FloatTable { values, index } => {
                let of_bits = |bits| T::from_f32(f32::from_bits(bits));
                let indices = self.ints(*index).iter();
                Register::Float(
                    indices
                        .map(|&index| of_bits(values[clamp(index, values.len())]))
                        .collect(),
                )
            }
            Instruction::Apply(op, operands) => self.apply(*op, operands),
        }
    }

    /// Returns the elements of a tensor that the keys read, or one for all keys.
    fn load(&self, tensor: usize, index: &[usize]) -> Vec<T> {
        let Captured { shape, values } = self.tensors[tensor];
        let varies = |step: &&usize| self.ints(**step).len() > 1;
        let mut varying = index.iter().enumerate().filter(|(_, step)| varies(step));
        // Most loads depend on the key through one index only.
        if let (Some((axis, &step)), None) = (varying.next(), varying.next())
            && let Some(&extent) = shape.get(axis)
        {
            let stride: usize = shape[axis + 1..].iter().product();
            let keys = self.ints(step);
            let first = self.element(tensor, index, 0) - clamp(keys[0], extent) * stride;
            return keys
                .iter()
                .map(|&key| values[first + clamp(key, extent) * stride])
                .collect();
        }
        let len = index.iter().map(|&step| self.ints(step).len()).max().unwrap_or(1);
        (0..len)
            .map(|key| values[self.element(tensor, index, key)])
            .collect()
    }

    /// Returns the offset of the element of a tensor for key `key`.
    fn element(&self, tensor: usize, index: &[usize], key: usize) -> usize {
        let extents = self.tensors[tensor].shape;
        let indices = index.iter().map(|&step| at(self.ints(step), key));
        indices.zip(extents).fold(0, |offset, (index, &extent)| {
            offset * extent + clamp(index, extent)
        })
    }

    fn apply(&self, op: Operator, operands: &[usize]) -> Register<T> {
        let is_float = self.program.steps()[operands[operands.len() - 1]].ty == Type::Float;
        let ints = |index: usize| self.ints(operands[index]);
        let floats = |index: usize| self.floats(operands[index]);
        let bools = |index: usize| self.bools(operands[index]);
        let int1 = |f: fn(i32) -> i32| Register::Int(ints(0).iter().map(|&x| f(x)).collect());
        let int2 = |f: fn(i32, i32) -> i32| Register::Int(zip(ints(0), ints(1), f));
        let bool2 = |f: fn(bool, bool) -> bool| Register::Bool(zip(bools(0), bools(1), f));
        if is_float && let Some(f) = op.of_float() {
            return Register::Float(floats(0).iter().map(|&x| f(x)).collect());
        }
        if is_float && let Some(f) = op.of_floats() {
            return Register::Float(zip(floats(0), floats(1), f));
        }
        if is_float && let Some(f) = op.of_comparison() {
            return Register::Bool(zip(floats(0), floats(1), f));
        }
        if let Some(f) = op.of_comparison() {
            return Register::Bool(zip(ints(0), ints(1), f));
        }
        match op {
            Operator::Add => int2(i32::wrapping_add),
            Operator::Sub => int2(i32::wrapping_sub),
            Operator::Mul => int2(i32::wrapping_mul),
            Operator::Min => int2(i32::min),
            Operator::Max => int2(i32::max),
            Operator::Neg => int1(i32::wrapping_neg),
            Operator::Abs => int1(i32::wrapping_abs),
            Operator::FloorDiv => int2(floor_div),
            Operator::Mod => int2(|x, y| x.wrapping_sub(y.wrapping_mul(floor_div(x, y))) * i32::from(y != 0)),
            Operator::ToFloat => Register::Float(ints(0).iter().map(|&x| T::from_f32(x as f32)).collect()),
            Operator::And => bool2(|x, y| x && y),
            Operator::Or => bool2(|x, y| x || y),
            Operator::Not => Register::Bool(bools(0).iter().map(|x| !x).collect()),
            Operator::Select => match (&self.registers[operands[1]], &self.registers[operands[2]]) {
                (Register::Float(x), Register::Float(y)) => Register::Float(select(bools(0), x, y)),
                (Register::Int(x), Register::Int(y)) => Register::Int(select(bools(0), x, y)),
                (Register::Bool(x), Register::Bool(y)) => Register::Bool(select(bools(0), x, y)),
                _ => Register::Bool(Vec::new()),
            },
            // The remaining operators are functions of floats, which came first.
            _ => Register::Float(Vec::new()),
        }
    }
}

/// Marks a step, its operands and their operands.
fn mark(program: &Program, step: usize, is_needed: &mut [bool]) {
    let mut stack = vec![step];
    while let Some(step) = stack.pop() {
        is_needed[step] = true;
        stack.extend(
            program.steps()[step]
                .operands()
                .iter()
                .filter(|&&operand| !is_needed[operand]),
        );
    }
}

fn at<V: Copy>(values: &[V], key: usize) -> V {
    values[if values.len() == 1 { 0 } else { key }]
}

fn zip<X: Copy, Y: Copy, Z>(x: &[X], y: &[Y], f: impl Fn(X, Y) -> Z) -> Vec<Z> {
    match (x, y) {
        ([x], y) => y.iter().map(|&y| f(*x, y)).collect(),
        (x, [y]) => x.iter().map(|&x| f(x, *y)).collect(),
        (x, y) => x.iter().zip(y).map(|(&x, &y)| f(x, y)).collect(),
    }
}

fn select<V: Copy>(condition: &[bool], x: &[V], y: &[V]) -> Vec<V> {
    let len = condition.len().max(x.len()).max(y.len());
    let choose = |key| {
        if at(condition, key) {
            at(x, key)
        } else {
            at(y, key)
        }
    };
    (0..len).map(choose).collect()
}

fn clamp(index: i32, extent: usize) -> usize {
    usize::try_from(index).unwrap_or(0).min(extent - 1)
}

/// Returns `⌊x / y⌋`, and 0 for a divisor of 0.
fn floor_div(x: i32, y: i32) -> i32 {
    let quotient = x.checked_div(y).unwrap_or(0);
    let is_rounded_up = y != 0 && x.wrapping_rem(y) != 0 && ((x < 0) != (y < 0));
    quotient - i32::from(is_rounded_up)
}
