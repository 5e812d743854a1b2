//! Where the elements of a constant come from.

use std::fmt;
use std::ops::Range;

/// Where the elements of a constant come from: tensors of the model, and what was done to them. Shown as the constant's name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Provenance {
    /// A tensor of the model, by its name in the weight file.
    Tensor(String),
    /// The rows of each, one after the other.
    Joined(Vec<Self>),
    /// Elements of another constant, after a change.
    Changed {
        /// Constant before the change.
        of: Box<Self>,
        /// What was done to it.
        change: Change,
    },
    /// Result of a computation that is named by its purpose, such as the node it was made for.
    Computed {
        /// Name of the result.
        name: String,
        /// Constants that were computed with, if there are any.
        of: Vec<Self>,
    },
    /// This number in every element.
    Number(f32),
}

/// A change of a constant's elements.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Keeps these indices of the outermost dimension.
    Rows(Range<usize>),
    /// Keeps these columns of a matrix.
    Columns(Range<usize>),
    /// Keeps one index of the second dimension.
    Column(usize),
    /// Keeps a rank's share of one dimension.
    Share {
        /// The rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// Sets the rows of the other half of each attention head to zero.
    HalfOfHeads(usize),
    /// Repeats each attention head this many times.
    RepeatedHeads(usize),
    /// Adds zeros after the rows and columns.
    Padded,
    /// Multiplies rows or columns by factors.
    Scaled(Box<Provenance>),
    /// Folds the normalisation of pixels in.
    Normalized,
    /// Reorders the elements.
    Layout(Layout),
    /// Interpolates from one grid to another.
    Resampled {
        /// Rows and columns before.
        from: [usize; 2],
        /// Rows and columns after.
        to: [usize; 2],
    },
    /// Expands a table to each place of a grid, or each pair of places.
    Grid([usize; 2]),
}

/// An order of a weight's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Channels before rows and columns.
    Chw,
    /// Channels after rows and columns.
    Hwc,
    /// All but the outermost dimension as one.
    Flat,
    /// Columns as rows.
    Transposed,
}

impl Provenance {
    /// Returns the provenance of a result that was computed with the constants `of`.
    pub fn computed(name: impl Into<String>, of: impl Into<Vec<Self>>) -> Self {
        Self::Computed {
            name: name.into(),
            of: of.into(),
        }
    }

    /// Returns the provenance of these elements after `change`.
    pub fn then(self, change: Change) -> Self {
        Self::Changed {
            of: Box::new(self),
            change,
        }
    }

    /// Returns the names of the model's tensors whose elements these are, in order. Factors are left out.
    pub fn tensors(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.collect_tensors(&mut names);
        names
    }

    fn collect_tensors<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::Tensor(name) => names.push(name),
            Self::Joined(all) | Self::Computed { of: all, .. } => {
                all.iter().for_each(|one| one.collect_tensors(names));
            }
            Self::Changed { of, .. } => of.collect_tensors(names),
            Self::Number(_) => {}
        }
    }
}

impl<T: Into<String>> From<T> for Provenance {
    fn from(tensor: T) -> Self {
        Self::Tensor(tensor.into())
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(name) | Self::Computed { name, .. } => f.write_str(name),
            Self::Joined(all) => {
                for (index, one) in all.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " + " };
                    write!(f, "{separator}{one}")?;
                }
                Ok(())
            }
            Self::Changed { of, change } => write!(f, "{of}{change}"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Written after what is changed.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => write!(f, "[{}..{}]", rows.start, rows.end),
            Self::Columns(columns) => write!(f, "[:, {}..{}]", columns.start, columns.end),
            Self::Column(column) => write!(f, "[:, {column}]"),
            Self::Share { rank, ranks } => write!(f, " [{rank}/{ranks}]"),
            Self::HalfOfHeads(half) => write!(f, " half {half}"),
            Self::RepeatedHeads(times) => write!(f, "[heads × {times}]"),
            Self::Padded => f.write_str("[padded]"),
            Self::Scaled(factors) => write!(f, " · {factors}"),
            Self::Normalized => f.write_str(" (normalized)"),
            Self::Layout(Layout::Chw) => f.write_str(" (chw)"),
            Self::Layout(Layout::Hwc) => f.write_str(" (hwc)"),
            Self::Layout(Layout::Flat) => f.write_str(" (flat)"),
            Self::Layout(Layout::Transposed) => f.write_str(" transposed"),
            Self::Resampled { from, to } => {
                write!(f, " {}×{}→{}×{}", from[0], from[1], to[0], to[1])
            }
            Self::Grid([rows, columns]) => write!(f, " {rows}×{columns}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_was_done_and_tensors_are_found_without_it() {
        let tensor = |name: &str| Provenance::from(name);
        let qkv = Provenance::Joined(vec![
            tensor("q.weight").then(Change::Scaled(Box::new(tensor("gamma")))),
            // A tensor's name may look like a change.
            tensor("k[0..2] + x").then(Change::Rows(0..8)),
            tensor("v.weight"),
        ]);
        let padded = qkv.then(Change::Padded).then(Change::Share { rank: 1, ranks: 2 });
        let name = "q.weight · gamma + k[0..2] + x[0..8] + v.weight[padded] [1/2]";
        assert_eq!(padded.to_string(), name);
        assert_eq!(padded.tensors(), ["q.weight", "k[0..2] + x", "v.weight"]);

        let bias = Provenance::Joined(vec![tensor("q.bias"), Provenance::Number(0.0)]);
        assert_eq!(
            (bias.to_string().as_str(), bias.tensors()),
            ("q.bias + 0", vec!["q.bias"])
        );
        let computed = Provenance::computed("tokens.prefix", [tensor("cls_token"), bias]);
        assert_eq!(computed.to_string(), "tokens.prefix");
        assert_eq!(computed.tensors(), ["cls_token", "q.bias"]);
    }
}
