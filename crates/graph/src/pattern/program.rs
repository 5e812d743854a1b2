//! Steps of a pattern in order, each once, for evaluation and code generation.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::PatternError;
use super::expression::{Expression, Index, Node, Number, Table};
use super::operator::Operator;
use super::types::{MAX_TOKENS, Type};

/// What a step depends on: a set of the bits of this type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dependencies(u8);

impl Dependencies {
    /// The score.
    pub const SCORE: Self = Self(1);
    /// The image.
    pub const BATCH: Self = Self(2);
    /// The head.
    pub const HEAD: Self = Self(4);
    /// The query.
    pub const QUERY: Self = Self(8);
    /// The key.
    pub const KEY: Self = Self(16);
    /// A captured tensor or a scalar.
    pub const CAPTURED: Self = Self(32);
    /// An operand of an elementwise op.
    pub const OPERAND: Self = Self(64);

    /// Returns true if both sets have a common element.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Checks the number of queries or keys.
pub(crate) fn check_tokens(tokens: usize) -> Result<(), PatternError> {
    if tokens > MAX_TOKENS {
        return Err(PatternError::Tokens(tokens));
    }
    Ok(())
}

/// A captured tensor, which each run provides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Name.
    pub name: Arc<str>,
    /// Integer or float.
    pub ty: Type,
    /// Number of indices.
    pub rank: usize,
}

/// A number that each run provides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// Name.
    pub name: Arc<str>,
    /// Integer or float.
    pub ty: Type,
}

/// What a step computes. Operands are indices of earlier steps. Constants of floats are their bits, so that steps can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// The score before the pattern.
    Score,
    /// The operand of this index of an elementwise op.
    Operand(u32),
    /// An index or extent.
    Index(Index),
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i32),
    /// The bits of a float.
    Float(u32),
    /// Scalar of this index in [`Program::scalars`].
    Scalar(usize),
    /// Element of the tensor of index `tensor` in [`Program::tensors`]. Indices are clamped.
    Load {
        /// Index of the tensor.
        tensor: usize,
        /// Steps that compute the indices.
        index: Vec<usize>,
    },
    /// Element of a table of integers. The index is clamped.
    IntTable {
        /// Elements.
        values: Arc<[i32]>,
        /// Step that computes the index.
        index: usize,
    },
    /// Element of a table of floats, by their bits. The index is clamped.
    FloatTable {
        /// Bits of the elements.
        values: Arc<[u32]>,
        /// Step that computes the index.
        index: usize,
    },
    /// An operator.
    Apply(Operator, Vec<usize>),
}

/// An instruction with its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// What is computed.
    pub instruction: Instruction,
    /// Type of the result.
    pub ty: Type,
    /// What the result depends on.
    pub dependencies: Dependencies,
}

impl Step {
    /// Returns the steps that are this step's operands.
    pub fn operands(&self) -> &[usize] {
        match &self.instruction {
            Instruction::Load { index, .. } => index,
            Instruction::IntTable { index, .. } | Instruction::FloatTable { index, .. } => {
                std::slice::from_ref(index)
            }
            Instruction::Apply(_, operands) => operands,
            _ => &[],
        }
    }
}

/// A checked [`Pattern`](super::Pattern), or the expression of an [`Elementwise`](crate::op::Elementwise), as a list of steps without
/// repetitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    name: Option<Arc<str>>,
    steps: Vec<Step>,
    tensors: Vec<Tensor>,
    scalars: Vec<Scalar>,
    score: Option<usize>,
    mask: Option<usize>,
}

impl Program {
    pub(super) fn new(
        name: Option<Arc<str>>,
        score: Option<&Expression>,
        mask: Option<&Expression>,
    ) -> Result<Self, PatternError> {
        let mut builder = Builder::default();
        let no_operands = |place: &str, program: &Self, step: usize| {
            if program.steps[step].dependencies.intersects(Dependencies::OPERAND) {
                let (place, reason) = (
                    place.into(),
                    "reads an operand of an elementwise op. Use a scalar or a tensor",
                );
                return Err(PatternError::Invalid { place, reason });
            }
            Ok(step)
        };
        let score = match score {
            Some(expression) => {
                let score = builder.root("score", expression, Type::Float, "a float")?;
                Some(no_operands("score", &builder.program, score)?)
            }
            None => None,
        };
        let mask = match mask {
            Some(expression) => {
                let mask = builder.root("mask", expression, Type::Bool, "a truth value")?;
                if builder.program.steps[mask]
                    .dependencies
                    .intersects(Dependencies::SCORE)
                {
                    return Err(PatternError::Score { place: "mask".into() });
                }
                Some(no_operands("mask", &builder.program, mask)?)
            }
            None => None,
        };
        Ok(Self {
            name,
            score,
            mask,
            ..builder.program
        })
    }

    /// Compiles an expression of `operands` operands. Returns the program and the step that computes the expression.
    ///
    /// # Errors
    ///
    /// [`PatternError`] if types do not fit, or if the expression reads anything else than operands and constants of floats and truth values.
    pub(crate) fn of_operands(
        expression: &Expression,
        operands: usize,
    ) -> Result<(Self, usize), PatternError> {
        let place = "value";
        let mut builder = Builder::default();
        let result = builder.add(expression, place)?;
        let program = builder.program;
        for step in &program.steps {
            let reason = match step.instruction {
                Instruction::Operand(index) if index as usize >= operands => {
                    "reads an operand that the op does not have"
                }
                Instruction::Operand(_) | Instruction::Bool(_) | Instruction::Float(_) => continue,
                Instruction::Apply(..) if step.ty != Type::Int => continue,
                _ => {
                    "reads the scores of attention, a captured tensor or an integer. Use operands and floats"
                }
            };
            let place = place.into();
            return Err(PatternError::Invalid { place, reason });
        }
        Ok((program, result))
    }

    /// Returns the pattern's name in reports.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the steps. A step comes after its operands.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the captured tensors, in the order of their first use.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the scalars, in the order of their first use.
    pub fn scalars(&self) -> &[Scalar] {
        &self.scalars
    }

    /// Returns the step that computes the score. `None` if it is not changed.
    pub fn score(&self) -> Option<usize> {
        self.score
    }

    /// Returns the step that computes the mask. `None` if all keys are visible.
    pub fn mask(&self) -> Option<usize> {
        self.mask
    }

    /// Checks the shapes of the captured tensors, in the program's order.
    ///
    /// # Errors
    ///
    /// [`PatternError::Captured`], naming the tensor.
    pub fn check_tensors(&self, shapes: &[&[usize]]) -> Result<(), PatternError> {
        let captured = |name: &Arc<str>, reason: String| PatternError::Captured {
            name: name.to_string(),
            reason,
        };
        if let Some(tensor) = self.tensors.get(shapes.len()) {
            return Err(captured(&tensor.name, "no tensor was given for it".into()));
        }
        if shapes.len() > self.tensors.len() {
            let reason = format!(
                "the pattern captures {} tensors, got {}",
                self.tensors.len(),
                shapes.len()
            );
            return Err(captured(&"pattern".into(), reason));
        }
        for (tensor, shape) in self.tensors.iter().zip(shapes) {
            if shape.len() != tensor.rank || shape.contains(&0) {
                let reason = format!(
                    "has shape {shape:?}, expected {} extents of at least 1",
                    tensor.rank
                );
                return Err(captured(&tensor.name, reason));
            }
            let elements = shape
                .iter()
                .try_fold(1usize, |count, &extent| count.checked_mul(extent));
            if elements.is_none_or(|count| i32::try_from(count).is_err()) {
                let reason = format!("has shape {shape:?}, more than 2³¹ − 1 elements");
                return Err(captured(&tensor.name, reason));
            }
        }
        Ok(())
    }

    /// Checks the scalars, in the program's order.
    ///
    /// # Errors
    ///
    /// [`PatternError::Captured`], naming the scalar.
    pub fn check_scalars(&self, values: &[Number]) -> Result<(), PatternError> {
        for (index, scalar) in self.scalars.iter().enumerate() {
            let reason = match (scalar.ty, values.get(index)) {
                (_, None) => "no value was given for it",
                (Type::Float, Some(Number::Int(_))) => "is a float, got an integer",
                (Type::Int | Type::Bool, Some(Number::Float(_))) => "is an integer, got a float",
                _ => continue,
            };
            return Err(PatternError::Captured {
                name: scalar.name.to_string(),
                reason: reason.into(),
            });
        }
        if values.len() > self.scalars.len() {
            let reason = format!(
                "the pattern has {} scalars, got {}",
                self.scalars.len(),
                values.len()
            );
            let name = "pattern".into();
            return Err(PatternError::Captured { name, reason });
        }
        Ok(())
    }

    /// Returns the index of a step that is equal to this one, which is appended if there is none.
    pub(crate) fn step(
        &mut self,
        steps: &mut HashMap<Instruction, usize>,
        instruction: Instruction,
        ty: Type,
    ) -> usize {
        if let Some(&index) = steps.get(&instruction) {
            return index;
        }
        let of_operands = |operands: &[usize]| {
            operands
                .iter()
                .map(|&index| self.steps[index].dependencies)
                .fold(Dependencies::default(), Dependencies::union)
        };
        let dependencies = match &instruction {
            Instruction::Score => Dependencies::SCORE,
            Instruction::Index(Index::Batch) => Dependencies::BATCH,
            Instruction::Index(Index::Head) => Dependencies::HEAD,
            Instruction::Index(Index::Query) => Dependencies::QUERY,
            Instruction::Index(Index::Key) => Dependencies::KEY,
            Instruction::Operand(_) => Dependencies::OPERAND,
            Instruction::Index(_) | Instruction::Bool(_) | Instruction::Int(_) | Instruction::Float(_) => {
                Dependencies::default()
            }
            Instruction::Scalar(_) => Dependencies::CAPTURED,
            Instruction::Load { index, .. } => of_operands(index).union(Dependencies::CAPTURED),
            Instruction::IntTable { index, .. } | Instruction::FloatTable { index, .. } => {
                of_operands(&[*index])
            }
            Instruction::Apply(_, operands) => of_operands(operands),
        };
        self.steps.push(Step {
            instruction: instruction.clone(),
            ty,
            dependencies,
        });
        steps.insert(instruction, self.steps.len() - 1);
        self.steps.len() - 1
    }

    /// Returns the steps by their instructions.
    pub(crate) fn by_instruction(&self) -> HashMap<Instruction, usize> {
        let steps = self.steps.iter().enumerate();
        steps
            .map(|(index, step)| (step.instruction.clone(), index))
            .collect()
    }
}

#[derive(Default)]
struct Builder {
    program: Program,
    by_instruction: HashMap<Instruction, usize>,
    /// Steps of shared nodes, by their addresses. The pattern keeps the nodes alive.
    by_node: HashMap<usize, usize>,
}

impl Builder {
    fn root(
        &mut self,
        name: &str,
        expression: &Expression,
        ty: Type,
        expected: &'static str,
    ) -> Result<usize, PatternError> {
        let step = self.add(expression, name)?;
        let found = self.program.steps[step].ty;
        if found == ty {
            Ok(step)
        } else {
            let place = name.into();
            Err(PatternError::Type {
                place,
                found,
                expected,
            })
        }
    }

    fn add(&mut self, expression: &Expression, place: &str) -> Result<usize, PatternError> {
        let address = Arc::as_ptr(&expression.0).addr();
        if let Some(&step) = self.by_node.get(&address) {
            return Ok(step);
        }
        let (instruction, ty) = self.instruction(expression, place)?;
        let step = self.program.step(&mut self.by_instruction, instruction, ty);
        self.by_node.insert(address, step);
        Ok(step)
    }

    fn instruction(
        &mut self,
        expression: &Expression,
        place: &str,
    ) -> Result<(Instruction, Type), PatternError> {
        Ok(match &*expression.0 {
            Node::Score => (Instruction::Score, Type::Float),
            Node::Operand(index) => (Instruction::Operand(*index), Type::Float),
            Node::Index(index) => (Instruction::Index(*index), Type::Int),
            Node::Bool(value) => (Instruction::Bool(*value), Type::Bool),
            Node::Int(value) => (Instruction::Int(*value), Type::Int),
            Node::Float(value) => (Instruction::Float(value.to_bits()), Type::Float),
            Node::Scalar { name, ty } => {
                let scalar = Scalar {
                    name: name.clone(),
                    ty: *ty,
                };
                let index = declare(&mut self.program.scalars, scalar, place, |scalar| {
                    (&scalar.name, scalar.ty.to_string())
                })?;
                (Instruction::Scalar(index), *ty)
            }
            Node::Load { tensor, ty, index } => {
                let place = format!("{place}: {tensor}");
                if index.is_empty() {
                    let reason = "has no index. Use a scalar";
                    return Err(PatternError::Invalid { place, reason });
                }
                let declared = Tensor {
                    name: tensor.clone(),
                    ty: *ty,
                    rank: index.len(),
                };
                let describe = |tensor: &Tensor| format!("{} with {} indices", tensor.ty, tensor.rank);
                let tensor = declare(&mut self.program.tensors, declared, &place, |tensor| {
                    (&tensor.name, describe(tensor))
                })?;
                let index = self.indices(index, &place)?;
                (Instruction::Load { tensor, index }, *ty)
            }
            Node::Table { values, index } => {
                let place = format!("{place}: table");
                if values.len() == 0 {
                    let reason = "has no elements";
                    return Err(PatternError::Invalid { place, reason });
                }
                let index = self.indices(std::slice::from_ref(index), &place)?[0];
                let instruction = match values {
                    Table::Int(values) => Instruction::IntTable {
                        values: values.clone(),
                        index,
                    },
                    Table::Float(values) => Instruction::FloatTable {
                        values: values.iter().map(|value| value.to_bits()).collect(),
                        index,
                    },
                };
                (instruction, values.ty())
            }
            Node::Apply(op, operands) => self.apply(*op, operands, &format!("{place}: {}", op.name()))?,
        })
    }

    fn apply(
        &mut self,
        op: Operator,
        operands: &[Expression],
        place: &str,
    ) -> Result<(Instruction, Type), PatternError> {
        let expected = op.operands();
        if operands.len() != expected {
            let (place, found) = (place.into(), operands.len());
            return Err(PatternError::Count {
                place,
                expected,
                found,
            });
        }
        let operands = operands.iter().enumerate();
        let steps = operands
            .map(|(index, operand)| self.add(operand, &format!("{place}[{index}]")))
            .collect::<Result<Vec<_>, _>>()?;
        let types: Vec<Type> = steps.iter().map(|&step| self.program.steps[step].ty).collect();
        let ty = op
            .result(&types)
            .map_err(|(index, expected)| PatternError::Type {
                place: format!("{place}[{index}]"),
                found: types[index],
                expected,
            })?;
        Ok((Instruction::Apply(op, steps), ty))
    }

    fn indices(&mut self, index: &[Expression], place: &str) -> Result<Vec<usize>, PatternError> {
        let add = |(number, expression)| {
            let place = format!("{place}[{number}]");
            let step = self.add(expression, &place)?;
            let found = self.program.steps[step].ty;
            if found == Type::Int {
                Ok(step)
            } else {
                let expected = "an integer";
                Err(PatternError::Type {
                    place,
                    found,
                    expected,
                })
            }
        };
        index.iter().enumerate().map(add).collect()
    }
}

/// Returns the index of `item` in `items`. An item of the same name must be equal.
fn declare<T: PartialEq>(
    items: &mut Vec<T>,
    item: T,
    place: &str,
    describe: impl Fn(&T) -> (&Arc<str>, String),
) -> Result<usize, PatternError> {
    let (name, found) = describe(&item);
    match items.iter().position(|other| describe(other).0 == name) {
        Some(index) if items[index] == item => Ok(index),
        Some(index) => Err(PatternError::Conflict {
            place: place.into(),
            name: name.to_string(),
            found,
            before: describe(&items[index]).1,
        }),
        None => {
            items.push(item);
            Ok(items.len() - 1)
        }
    }
}
