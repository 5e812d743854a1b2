//! The assignment of targets to queries with the smallest sum of costs.

/// Returns the column of each row such that the sum of their costs is the smallest, and no two rows have the same column. There are at least as
/// many columns as rows.
///
/// The Hungarian algorithm with potentials: each row extends the assignment along a shortest path of reduced costs.
pub(super) fn assign(rows: usize, columns: usize, cost: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    let mut of_row = vec![0.0; rows];
    let mut of_column = vec![0.0; columns];
    let mut owner: Vec<Option<usize>> = vec![None; columns];
    for row in 0..rows {
        let mut distance = vec![f64::INFINITY; columns];
        // The column before each one on its path. `None` if that is the start.
        let mut before: Vec<Option<usize>> = vec![None; columns];
        let mut is_visited = vec![false; columns];
        let (mut from, mut at) = (None, row);
        let end = loop {
            let mut nearest = (f64::INFINITY, 0);
            for column in (0..columns).filter(|&column| !is_visited[column]) {
                let reduced = cost(at, column) - of_row[at] - of_column[column];
                if reduced < distance[column] {
                    distance[column] = reduced;
                    before[column] = from;
                }
                if distance[column] < nearest.0 {
                    nearest = (distance[column], column);
                }
            }
            let (step, next) = nearest;
            of_row[row] += step;
            for column in 0..columns {
                match owner[column].filter(|_| is_visited[column]) {
                    Some(owner) => {
                        of_row[owner] += step;
                        of_column[column] -= step;
                    }
                    None => distance[column] -= step,
                }
            }
            is_visited[next] = true;
            match owner[next] {
                Some(owner) => (from, at) = (Some(next), owner),
                None => break next,
            }
        };
        let mut column = end;
        while let Some(previous) = before[column] {
            owner[column] = owner[previous];
            column = previous;
        }
        owner[column] = Some(row);
    }
    let mut assigned = vec![0; rows];
    for (column, owner) in owner.into_iter().enumerate() {
        if let Some(row) = owner {
            assigned[row] = column;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the smallest sum of costs of all assignments.
    fn smallest(row: usize, rows: usize, used: &mut Vec<bool>, cost: &dyn Fn(usize, usize) -> f64) -> f64 {
        if row == rows {
            return 0.0;
        }
        let mut best = f64::INFINITY;
        for column in 0..used.len() {
            if !used[column] {
                used[column] = true;
                best = best.min(cost(row, column) + smallest(row + 1, rows, used, cost));
                used[column] = false;
            }
        }
        best
    }

    #[test]
    fn sums_of_costs_are_the_smallest() {
        for (case, [rows, columns]) in [[1, 1], [1, 5], [3, 3], [4, 6], [5, 7], [6, 6]]
            .into_iter()
            .enumerate()
        {
            for seed in 0..20 {
                // Costs of both signs, some of them equal.
                let cost = |row: usize, column: usize| {
                    let hash = (row * 7919 + column * 104_729 + seed * 1299 + case * 31) % 23;
                    hash as f64 - 11.0
                };
                let found = assign(rows, columns, cost);
                let mut taken = found.clone();
                taken.sort_unstable();
                taken.dedup();
                assert_eq!(taken.len(), rows);
                let sum: f64 = found
                    .iter()
                    .enumerate()
                    .map(|(row, &column)| cost(row, column))
                    .sum();
                let expected = smallest(0, rows, &mut vec![false; columns], &cost);
                assert!(
                    (sum - expected).abs() < 1e-9,
                    "{rows}×{columns} {seed}: {sum}, {expected}"
                );
            }
        }
        assert!(assign(0, 3, |_, _| 1.0).is_empty());
    }
}
