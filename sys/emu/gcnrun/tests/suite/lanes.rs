//! Cross-lane operations.

use crate::gpu::{Gpu, arguments, on, on_each, random};

const FILE: &str = "lanes.hip";

fn input(gpu: &Gpu) -> Vec<i32> {
    random(gpu.wave(), 1, |rng| rng.i32(-100..100))
}

/// Launches a kernel of one wave that computes `count` numbers per lane; checks each against `expected(lane, number)`.
fn check(
    gpu: &Gpu,
    kernel: &str,
    input: &[i32],
    extra: Option<i32>,
    count: usize,
    expected: impl Fn(usize, usize) -> i32,
) {
    let lanes = gpu.wave();
    let out = gpu.unwritten::<i32>(lanes * count);
    let mut arguments = arguments().buffer(&out).buffer(&gpu.buffer(input));
    if let Some(extra) = extra {
        arguments = arguments.with(extra);
    }
    gpu.launch(kernel, 1, lanes as u32, &arguments);
    for (i, got) in out.read(gpu).into_iter().enumerate() {
        let (lane, number) = (i / count, i % count);
        assert_eq!(
            got,
            expected(lane, number),
            "{kernel} on {}: number {number} of lane {lane}",
            gpu.arch
        );
    }
}

#[test]
fn lanes_read_and_write_each_other() {
    on_each(FILE, |gpu| {
        let x = input(gpu);
        for mask in [1, 2, 16, 31, gpu.wave() as i32 / 2] {
            check(gpu, "shuffle", &x, Some(mask), 1, |lane, _| {
                x[lane ^ mask as usize]
            });
        }
        check(gpu, "scatter", &x, None, 1, |lane, _| x[lane ^ 5]);
        check(gpu, "swizzle", &x, None, 2, |lane, number| {
            x[if number == 0 { lane ^ 16 } else { lane ^ 3 }]
        });
    });
}

#[test]
fn lanes_vote() {
    on_each(FILE, |gpu| {
        let x = input(gpu);
        let positive = x
            .iter()
            .enumerate()
            .fold(0_u64, |all, (lane, &x)| all | u64::from(x > 0) << lane);
        check(gpu, "votes", &x, None, 4, |_, number| match number {
            0 => positive as u32 as i32,
            1 => (positive >> 32) as i32,
            2 => x[0],
            _ => x[7],
        });
        let votes = positive.count_ones() as i32;
        check(gpu, "votes_of_some", &x, None, 1, |lane, _| {
            if x[lane] > 0 { votes } else { 0 }
        });
    });
}

#[test]
fn rows_of_sixteen_are_shifted_and_mirrored() {
    on_each(FILE, |gpu| {
        let x = input(gpu);
        check(gpu, "dpp", &x, None, 7, |lane, number| {
            let (row, place) = (lane & !15, lane & 15);
            match number {
                0 if place >= 1 => x[lane - 1],
                0 => 0,
                1 if place >= 8 && row & 16 != 0 => x[lane - 8],
                1 => 5,
                2 => x[row | (15 - place)],
                3 => x[row | place & 8 | (7 - (place & 7))],
                4 => x[row | ((place + 8) % 16)],
                5 => x[lane ^ 3],
                _ if matches!(place / 4, 0 | 2) => x[lane + 4],
                _ => -1,
            }
        });
    });
}

#[test]
fn rdna_permutes_rows() {
    on("gfx1100", FILE, |gpu| {
        let x = input(gpu);
        check(gpu, "permlane", &x, None, 5, |lane, number| {
            let (row, place) = (lane & 16, lane & 15);
            let nibble = |low: u64, high: u64| ((high << 32 | low) >> (4 * place) & 15) as usize;
            match number {
                0 => x[(row ^ 16) | nibble(0x7654_3210, 0xfedc_ba98)],
                1 => x[row | nibble(0x0123_4567, 0x89ab_cdef)],
                2 => x[lane & !7 | 0x123_4567 >> (3 * (lane & 7)) & 7],
                3 => x[row | (place ^ 3)],
                _ => x[row | 2],
            }
        });
    });
}

#[test]
fn cdna_broadcasts_rows() {
    for arch in ["gfx90a", "gfx942"] {
        on(arch, FILE, |gpu| {
            let x = input(gpu);
            check(gpu, "broadcasts", &x, None, 3, |lane, number| match number {
                0 if lane & 16 != 0 => x[(lane & !15) - 1],
                1 if lane & 32 != 0 => x[31],
                0 | 1 => 7,
                _ if lane > 0 => x[lane - 1],
                _ => 0,
            });
        });
    }
}
