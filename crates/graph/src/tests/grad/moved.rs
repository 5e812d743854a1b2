//! Derivatives of ops that move, repeat and add elements.

use super::{check, check_given};
use crate::array::Array;
use crate::op::{
    Combine, Concat, Expand, ExpandAs, Gather, Pad, Permute, PermuteTokens, Reduce, ReduceKind, Reshape,
    Slice, Softmax, SumToSize, TokenOrder, Transpose,
};

#[test]
fn sums_and_repetitions() {
    check(SumToSize { shape: vec![5] }, &[&[2, 3, 5]], &[0]);
    check(SumToSize { shape: vec![1, 3, 5] }, &[&[2, 3, 5]], &[0]);
    check(SumToSize { shape: vec![15, 2] }, &[&[2, 3, 5]], &[0]);
    check(ExpandAs, &[&[5], &[2, 3, 5]], &[0]);
    check(ExpandAs, &[&[1, 3, 5], &[2, 3, 5]], &[0]);
    check(ExpandAs, &[&[2, 3, 5], &[2, 3, 5]], &[0]);
}

#[test]
fn moved_elements() {
    check(Permute { axes: vec![2, 0, 1] }, &[&[2, 3, 4]], &[0]);
    let reshape = Reshape {
        extents: vec![4, 3],
        batch: Some(0),
    };
    check(reshape, &[&[2, 3, 2]], &[0]);
    let operands: [&[usize]; 3] = [&[2, 1, 3], &[2, 4, 3], &[2, 2, 3]];
    check(Concat { axis: 1 }, &operands, &[0, 1, 2]);
    check(Slice::new(1, 2, 3), &[&[2, 7, 3]], &[0]);
    let pad = Pad {
        before: vec![0, 2, 1],
        after: vec![1, 0, 3],
        ..Pad::zeros(3)
    };
    check(pad, &[&[2, 3, 4]], &[0]);
    for x in [&[3, 1][..], &[4], &[2, 3, 4], &[1, 1, 1]] {
        let expand = Expand {
            extents: vec![2, 3, 4],
            batch: None,
            like: None,
        };
        check(expand, &[x], &[0]);
    }
}

#[test]
fn rows_of_a_table() {
    // Rows that occur once, several times and not at all, and indices beyond both ends.
    let indices = Array::new([2, 4], vec![3.0, 0.0, 3.0, 1.0, -1.0, 3.0, 9.0, 0.0]).unwrap();
    for inner in [&[3][..], &[], &[2, 65]] {
        let table = [&[6], inner].concat();
        check_given(
            Gather { axis: 0 },
            &[&table, &[2, 4]],
            &[0],
            &[(1, indices.clone())],
        );
    }
}

#[test]
fn reductions_of_axes() {
    for kind in [ReduceKind::Sum, ReduceKind::Mean] {
        for (axes, keep) in [
            (&[1][..], true),
            (&[0, 2], false),
            (&[2], false),
            (&[0, 1, 2], true),
        ] {
            let reduce = Reduce {
                kind,
                axes: axes.into(),
                keep,
            };
            check(reduce, &[&[2, 3, 4]], &[0]);
        }
    }
    check(Softmax { log: false }, &[&[2, 3, 5]], &[0]);
}

#[test]
fn transposition_with_all_that_follows_it() {
    for [pad, crop] in [[0, 0], [3, 1], [2, 0], [0, 2]] {
        for scale in [false, true] {
            for combine in [None, Some(Combine::Add), Some(Combine::Multiply)] {
                let spec = Transpose {
                    scale,
                    combine,
                    pad,
                    crop,
                };
                let result = [2, 5 - crop, 4 + pad];
                let mut shapes: Vec<&[usize]> = vec![&[2, 4, 5]];
                shapes.extend(scale.then_some(&[4usize][..]));
                shapes.extend(combine.is_some().then_some(&result[..]));
                let all: Vec<usize> = (0..shapes.len()).collect();
                check(spec, &shapes, &all);
            }
        }
    }
}

#[test]
fn orders_of_a_grid() {
    let grid = [3, 5];
    let rows = TokenOrder::rows(grid);
    let windows = TokenOrder::windows(grid, [2, 2]);
    let rolled = windows.rolled([1, 1], grid);
    let padded = windows.rolled([1, 1], windows.padded(grid));
    let merged = TokenOrder::merged(grid, [2, 2]);
    for (from, to) in [
        (rows, windows),
        (rolled, padded),
        (padded, merged),
        (merged, rows),
    ] {
        let shape = from.shape(grid, 2, 3);
        check(PermuteTokens { grid, from, to }, &[&shape], &[0]);
    }
}
