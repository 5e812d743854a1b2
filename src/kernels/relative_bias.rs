//! `relative_bias`: the bias of each pair of a query and a key.

use hipvit_graph::op::RelativeBias;

use super::bindings::{RELATIVE_THREADS, RelativeBiasArgs, RelativeGrid};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl RelativeGrid {
    /// Returns the grid of an op, with a bias for this many heads.
    pub(super) fn new(op: &RelativeBias, heads: usize) -> Result<Self, KernelError> {
        let [rows, columns] = op.grid;
        let [shift_rows, shift_columns] = op.shift.unwrap_or_default();
        Ok(Self {
            rows: extent(rows)?,
            columns: extent(columns)?,
            class_token: op.class_token.into(),
            heads: extent(heads)?,
            kinds: extent(op.shift.map_or(1, |_| RelativeBias::KINDS))?,
            shift_rows: extent(shift_rows)?,
            shift_columns: extent(shift_columns)?,
            reserved: 0,
        })
    }

    /// Checks that there are tokens and heads, and returns the extents `[kinds, heads, tokens, tokens]`.
    pub(super) fn bias(&self) -> Result<[u32; 4], KernelError> {
        if [self.rows, self.columns, self.heads, self.kinds].contains(&0) {
            return Err("there are no tokens or no heads".into());
        }
        let tokens = u64::from(self.rows) * u64::from(self.columns) + u64::from(self.class_token);
        let tokens = u32::try_from(tokens).map_err(|_| KernelError::from("there are too many tokens"))?;
        Ok([self.kinds, self.heads, tokens, tokens])
    }

    /// Returns the extents `[distances, heads]` of the table.
    pub(super) fn table(&self) -> [u32; 2] {
        let [down, across] = [self.rows, self.columns].map(|n| (2 * n).saturating_sub(1));
        let of_class_token = RelativeBias::OF_CLASS_TOKEN as u32 * self.class_token;
        [down * across + of_class_token, self.heads]
    }
}

impl Lower for RelativeBias {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("relative_bias"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let heads = step.shape_of(0)?.last().copied().unwrap_or(0);
        one(RelativeBiasArgs {
            table: step.address(0)?,
            out: step.out,
            grid: RelativeGrid::new(self, heads)?,
        })
    }
}

// SAFETY: see hip/relative_bias.hip. Threads beyond the last element return.
unsafe impl KernelArguments for RelativeBiasArgs {
    const FILE: &'static str = "relative_bias";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let elements = self.grid.bias()?.into_iter().map(u64::from).product();
        target.threads(elements, RELATIVE_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let bias = self.grid.bias().unwrap_or_default();
        visit(Access::read(
            "table",
            self.table,
            bytes(element, &self.grid.table()),
        ));
        visit(Access::write("out", self.out, bytes(element, &bias)));
    }
}
