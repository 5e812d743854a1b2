//! Untyped expressions, as JSON has them. [`Float`](super::Float), [`Int`](super::Int) and [`Bool`](super::Bool) build them with types.

use std::sync::Arc;

use super::operator::Operator;
use super::types::Type;

/// Value of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// An integer.
    Int(i32),
    /// A float.
    Float(f32),
}

/// A place in the scores, or an extent of the scores. All are integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Index {
    /// Index of the image in the batch.
    Batch,
    /// Index of the head.
    Head,
    /// Index of the query.
    Query,
    /// Index of the key.
    Key,
    /// Number of heads.
    Heads,
    /// Number of queries.
    Queries,
    /// Number of keys.
    Keys,
}

impl Index {
    /// All indices and extents.
    pub const ALL: [Self; 7] = [
        Self::Batch,
        Self::Head,
        Self::Query,
        Self::Key,
        Self::Heads,
        Self::Queries,
        Self::Keys,
    ];

    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Head => "head",
            Self::Query => "query",
            Self::Key => "key",
            Self::Heads => "heads",
            Self::Queries => "queries",
            Self::Keys => "keys",
        }
    }
}

/// An expression of a score, a mask or an elementwise op. Types are checked by [`Pattern::compile`](super::Pattern::compile) and
/// [`Elementwise::new`](crate::op::Elementwise::new). Clones share the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(pub(super) Arc<Node>);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// The score before the pattern: `scale · q·k`.
    Score,
    /// An operand of an elementwise op, by its index.
    Operand(u32),
    Index(Index),
    Bool(bool),
    Int(i32),
    Float(f32),
    /// A number that each run provides.
    Scalar {
        name: Arc<str>,
        ty: Type,
    },
    /// An element of a captured tensor, which each run provides. Indices outside are clamped.
    Load {
        tensor: Arc<str>,
        ty: Type,
        index: Vec<Expression>,
    },
    /// An element of a constant table. The index is clamped.
    Table {
        values: Table,
        index: Expression,
    },
    Apply(Operator, Vec<Expression>),
}

/// Elements of a constant table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Table {
    Int(Arc<[i32]>),
    Float(Arc<[f32]>),
}

impl Table {
    pub(super) fn ty(&self) -> Type {
        match self {
            Self::Int(_) => Type::Int,
            Self::Float(_) => Type::Float,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Int(values) => values.len(),
            Self::Float(values) => values.len(),
        }
    }
}

impl Expression {
    pub(super) fn new(node: Node) -> Self {
        Self(Arc::new(node))
    }

    pub(super) fn apply<const N: usize>(op: Operator, operands: [&Self; N]) -> Self {
        Self::new(Node::Apply(op, operands.into_iter().cloned().collect()))
    }
}
