//! `top_k_few`, compared with the rows in descending order.

use super::{DTYPES, Gpu, Part, numbers, random, rounded};
use crate::kernels::TopKArgs;
use crate::ops::TopK;

/// Lengths around vectors and the least one of the kernel.
const LENGTHS: [usize; 5] = [2048, 2049, 2055, 5003, 16_391];

#[test]
fn few_elements_of_long_rows_are_taken() {
    let Some(gpu) = Gpu::get() else { return };
    for dtype in DTYPES {
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            for (k, largest, distinct) in [
                (1, true, true),
                (64, true, true),
                (7, false, true),
                (64, true, false),
            ] {
                let rows = 3;
                let mut x = rounded(&random(rows * length, seed + k, 1.0), dtype);
                if !distinct {
                    // More equal elements than a block keeps.
                    x.iter_mut().for_each(|x| *x = x.signum());
                }
                let parts = [
                    Part::numbers(&x, dtype),
                    Part::result(rows * k, dtype.size()),
                    Part::result(rows * k, size_of::<i32>()),
                ];
                let op = TopK { k, largest };
                let results = gpu.run(dtype, &parts, (seed + k) % 3, |addresses| {
                    Ok(TopKArgs::new(addresses, [rows, length], op, None)?.into())
                });
                let values = numbers(&results[0], dtype);
                let indices: Vec<i32> = bytemuck::pod_collect_to_vec(&results[1]);
                for (row, x) in x.chunks_exact(length).enumerate() {
                    let mut order: Vec<usize> = (0..length).collect();
                    // Stable: equal elements keep their order.
                    order.sort_by(|&a, &b| {
                        if largest {
                            x[b].total_cmp(&x[a])
                        } else {
                            x[a].total_cmp(&x[b])
                        }
                    });
                    for (place, &index) in order[..k].iter().enumerate() {
                        let at = row * k + place;
                        let found = (values[at], indices[at]);
                        assert_eq!(
                            found,
                            (x[index], index as i32),
                            "{dtype} {k} of {length}, row {row}, place {place}"
                        );
                    }
                }
            }
        }
    }
}
